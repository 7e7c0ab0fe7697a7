"""Optimizers on parameters that FSDP2 shards: those that the rules forbid raise, others do not."""

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from transformers import Trainer, TrainingArguments

from jobs.techniques import AXES
from jobs.techniques.axes.optimizer import PLAIN_TENSORS
from orchestrator.prediction.tracing.fakes.fake_ranks import fake_ranks

NAMES = ("adafactor", "adamw_bnb_8bit", "ademamix_8bit", "adamw_torch_fused", "adagrad", "rmsprop")


@pytest.mark.parametrize("name", NAMES)
def test_optimizer_updates_sharded_parameters_unless_a_rule_forbids_it(name, tmp_path):
    variant = AXES["optimizer"].variants[name]
    for package in (own for own in variant.requires if own.startswith("package:")):
        pytest.importorskip(package.partition(":")[2])
    arguments = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to="none", **variant.training_arguments
    )
    with fake_ranks(2):
        model = fully_shard(torch.nn.Linear(64, 64))
        optimizer = Trainer(model=model, args=arguments).create_optimizer()
        model(torch.ones(2, 64)).sum().backward()
        if PLAIN_TENSORS in variant.traits:
            with pytest.raises((RuntimeError, NotImplementedError), match=r"DTensor|sharding"):
                optimizer.step()
        else:
            optimizer.step()
