"""Muon with AdamW as one optimizer, compared with the two of torch on their own."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch

from jobs.finetuning.muon import muon
from tests.support.tiny_decoders import TOKENS, decoder

ARGUMENTS = SimpleNamespace(
    learning_rate=0.01, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.99, adam_epsilon=1e-8
)


def train(model: Any, *optimizers: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        model(input_ids=TOKENS, labels=TOKENS).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def assert_equal_weights(one: Any, other: Any) -> None:
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_muon_updates_matrices_of_layers_and_adamw_the_rest() -> None:
    model, apart = decoder(), decoder()
    train(model, muon(model, ARGUMENTS, ns_steps=3))
    named = dict(apart.named_parameters())
    layers = [value for name, value in named.items() if "proj" in name]
    outside = [named["model.embed_tokens.weight"], named["lm_head.weight"]]
    norms = [value for name, value in named.items() if "norm" in name]
    assert len(layers) + len(outside) + len(norms) == len(named)
    settings: Any = {"ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"}
    matrices = torch.optim.Muon(layers, lr=0.01, weight_decay=0.1, **settings)
    groups = [{"params": outside}, {"params": norms, "weight_decay": 0.0}]
    rest = torch.optim.AdamW(
        groups, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, fused=True
    )
    train(apart, matrices, rest)
    assert_equal_weights(model, apart)


def test_muon_follows_the_learning_rate_of_its_groups() -> None:
    model, before = decoder(), decoder()
    optimizer = muon(model, ARGUMENTS)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train(model, optimizer)
    assert_equal_weights(model, before)


def test_muon_of_a_loaded_checkpoint_goes_on_as_without_a_break() -> None:
    model = decoder()
    optimizer = muon(model, ARGUMENTS)
    train(model, optimizer)
    resumed = copy.deepcopy(model)
    later = muon(resumed, ARGUMENTS)
    later.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer)
    train(resumed, later)
    assert_equal_weights(model, resumed)


def test_muon_below_an_adapter_trains_its_matrices_alone() -> None:
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    optimizer = muon(peft.get_peft_model(decoder(), lora), ARGUMENTS)
    shapes = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(shapes) == [(2, 32), (2, 32), (32, 2), (32, 2)]


def test_muon_without_a_matrix_to_train_is_unsupported() -> None:
    model = decoder()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    with pytest.raises(ValueError, match="does not support Muon: none of the trained parameters"):
        muon(model, ARGUMENTS)
