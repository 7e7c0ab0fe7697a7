"""Whole trials with TRL's DPOTrainer on the CPU, beside a bare DPOTrainer on the same rows."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jobs.errors import UnsupportedError
from jobs.loops.trl.config import plain_defaults
from jobs.loops.trl.preference_rows import prepared_pairs
from jobs.record import Outcome, TrialRecord
from jobs.spec import (
    Choice,
    DatasetFile,
    DataSpec,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
    TrialSpec,
)
from jobs.trial import data
from jobs.trial.data.row_lengths import PairLengths
from jobs.trial.models import architecture_config
from jobs.trial.run import run
from tests.conftest import build_tiny_spec
from tests.support.word_tokenizer import CHAT_TEMPLATE, save_word_tokenizer

with warnings.catch_warnings():
    # What TRL and the libraries that it imports warn about, while they are imported.
    warnings.simplefilter("ignore")
    import trl

LLAMA = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
MODEL = ModelSpec(task="causal-lm", architecture="llama", config=LLAMA)
RAGGED = SyntheticData(
    sequence_length=32,
    samples=40,
    lengths=RowLengthDistribution(distribution="lognormal", mean=12),
)
PADDED = SyntheticData(sequence_length=32, samples=40, padding=0.3)
IPO = "trl_dpo(beta=0.5,loss_type=ipo)"
BEFORE = "trl_dpo(precompute_ref_log_probs=true)"
CASES: dict[str, tuple[SyntheticData, dict[str, Choice]]] = {
    "ragged": (RAGGED, {"accumulation": 2}),
    "padded": (PADDED, {}),
    "ipo": (PADDED, {"loop": IPO}),
    "before": (RAGGED, {"accumulation": 2, "loop": BEFORE}),
    "lora": (PADDED, {"adapter": "lora_r8", "activations": "checkpoint"}),
    "lora_before": (PADDED, {"adapter": "lora_r8", "loop": BEFORE}),
}
"""Name -> the rows, and the choices besides the loop."""
pytestmark = pytest.mark.filterwarnings(
    # TRL 1.16 calls a method that transformers 5.23 has renamed.
    "ignore:.*gradient_checkpointing:FutureWarning"
)
FAST = {"learning_rate": 1e-2}
"""A rate at which the losses of a few steps differ."""
Records = dict[str, TrialRecord]


def _spec(case: str) -> TrialSpec:
    rows, choices = CASES[case]
    chosen = {"loop": "trl_dpo", "micro_batch": 4, **choices}
    spec = build_tiny_spec(
        chosen, training_arguments=FAST, evaluate_and_save=True, profile=case == "padded", steps=3
    )
    return replace(spec, model=MODEL, data=DataSpec(synthetic=rows))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """One trial of each case: name -> its record."""
    folder = tmp_path_factory.mktemp("scratch")
    measured = {}
    for case in CASES:
        record = run(_spec(case), lambda phase: None, scratch=folder)
        assert record.outcome is Outcome.OK, (case, record.reason)
        measured[case] = record
    return measured


def _bare_losses(case: str, folder: Path) -> list[float]:
    """The losses of a DPOTrainer that knows nothing of this project, with a peft_config of its own.

    Only its rows are given as token ids, as the trial drew them.
    """
    import transformers
    from peft import LoraConfig

    rows, choices = CASES[case]
    accumulation = int(choices.get("accumulation", 1))
    config = architecture_config(MODEL)
    samples = 5 * 4 * accumulation
    pairs = data.load_pairs(DataSpec(synthetic=rows), config, samples=samples, seed=42)
    transformers.set_seed(42)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    settings: dict[str, Any] = {}
    if case == "ipo":
        settings = {"loss_type": "ipo", "beta": 0.5}
    arguments = trl.DPOConfig(
        **{**plain_defaults(trl.DPOConfig), **FAST, **settings},
        output_dir=str(folder),
        use_cpu=True,
        max_length=None,
        max_steps=5,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulation,
        pad_to_multiple_of=pairs.width,
        report_to="none",
        disable_tqdm=True,
        logging_nan_inf_filter=False,
    )
    losses: list[float] = []

    class Bare(trl.DPOTrainer):
        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            losses.append(float(loss))
            return loss

    peft_config = None
    reference = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    reference.load_state_dict(model.state_dict())
    if "adapter" in choices:
        peft_config = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear")
    trainer = Bare(
        model=model,
        ref_model=None if peft_config else reference,
        args=arguments,
        train_dataset=pairs.dataset,
        processing_class=pairs.tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    steps = np.array(losses).reshape(-1, accumulation)
    return [float(loss) for loss in steps.sum(axis=1)]


@pytest.mark.parametrize("case", ["ragged", "padded", "ipo"])
def test_dpo_trains_with_the_losses_of_a_bare_trainer(
    case: str, records: Records, tmp_path: Path
) -> None:
    losses = records[case].steps["loss"]
    assert losses == pytest.approx(_bare_losses(case, tmp_path), rel=1e-5)
    assert max(losses) > min(losses) + 1e-3
