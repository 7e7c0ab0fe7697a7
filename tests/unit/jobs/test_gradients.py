"""Gradients are compared with those of the same weights in fp32; faults are planted by a hook."""

import math
from dataclasses import replace

import pytest
import torch
from transformers.models.llama import modeling_llama

from jobs.gradient_check import GradientCheck
from jobs.record import Outcome
from jobs.trial.gradients.reference import gradients, separate_rows
from jobs.trial.gradients.rounding import RandomRounding, bounds
from tests.gradients.__main__ import IN_4_BITS, faulty, of_model, record_of
from tests.gradients.faults import FAULTS


@pytest.fixture(autouse=True)
def equal_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a CPU has AVX512-BF16, bitsandbytes packs a base's weights anew for each evaluation,
    and fails with fewer columns than a block of scales has."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: False)


@pytest.mark.parametrize(
    "name",
    [
        "detached/attention bert",
        "accumulation/mean of means",
        "dtype/gradient",
        "loss/doubled",
        "base/decoded with another scale 4bit",
    ],
)
def test_planted_fault_is_found(name):
    check = GradientCheck.of(record_of(faulty(name)).measurements)
    assert not check.agrees


@pytest.mark.parametrize(
    ("model", "choices"),
    [
        ("llama", {"precision": "bf16", "adapter": "lora_r8", "accumulation": 2}),
        ("llama", {"batching": "packed", "activations": "checkpoint"}),
        ("bert", {"precision": "bf16_weights", "loop": "accelerate"}),
        ("llama", {**IN_4_BITS, "batching": "packed", "loop": "trl_sft"}),
    ],
)
def test_right_gradients_agree(model, choices):
    check = GradientCheck.of(record_of(of_model(model, choices)).measurements)
    assert check.agrees
    assert check.tensors > 7
    assert check.cosine > 0.99


def test_reference_that_does_not_fit_takes_fewer_rows_at_once(monkeypatch):
    sizes = []

    def limited(model, loss_of, micro_batches):
        sizes.append(max(len(each["input_ids"]) for each in micro_batches))
        if sizes[-1] > 1:
            raise torch.OutOfMemoryError
        return gradients(model, loss_of, micro_batches)

    monkeypatch.setattr("jobs.trial.gradients.check.gradients", limited)
    spec = of_model("llama", {"micro_batch": 3, "accumulation": 2}, padded=False)
    check = GradientCheck.of(record_of(spec).measurements)
    assert check.agrees
    assert sizes == [3, 2, 1, 1, 1, 1, 1]


def test_reference_has_the_code_that_a_technique_replaced(monkeypatch):
    original = modeling_llama.LlamaRMSNorm

    def replace_class(model, **chosen):
        # As Liger does: for the model, and for all models that are built later.
        monkeypatch.setattr(modeling_llama, "LlamaRMSNorm", None)

    monkeypatch.setitem(FAULTS, "replaced class", replace_class)
    record = record_of(faulty("replaced class"))
    check = GradientCheck.of(record.measurements)
    assert check is not None, record.measurements["gradients_missing"]
    assert check.agrees
    assert modeling_llama.LlamaRMSNorm is original


def test_comparison_that_is_not_possible_says_why():
    spec = of_model("llama", {})
    arguments = {**spec.settings.training_arguments, "neftune_noise_alpha": 5.0}
    noisy = replace(spec, settings=replace(spec.settings, training_arguments=arguments))
    record = record_of(noisy)
    assert record.outcome is Outcome.OK
    assert "random noise" in record.measurements["gradients_missing"]


def test_random_rounding_is_as_large_as_a_rounding_and_spares_views():
    values = torch.ones(10_000)
    with RandomRounding(0.01, seed=0, weights=[values]):
        product = values * 1
        view = values.view(100, 100)
        positions = torch.arange(100) / 2
    assert 0.009 < float((product - 1).abs().max()) <= 0.01
    assert float((product - 1).std()) == pytest.approx(0.01 / math.sqrt(3), rel=0.05)
    assert torch.equal(view, torch.ones(100, 100))
    assert torch.equal(positions, torch.arange(100) / 2)


def test_bound_is_wide_where_draws_say_little():
    draws = torch.randn(4, 10_000, generator=torch.Generator().manual_seed(0))
    independent = {"many": list(draws)}
    one_cause = {"many": [draws[0] * scale for scale in (1.0, -0.9, 1.1, 0.8)]}
    reference = {"many": torch.ones(10_000)}
    narrow, wide = bounds(reference, independent)["many"], bounds(reference, one_cause)["many"]
    # Quantiles of Student's t at 1 - 5e-5 for very many and for four degrees of freedom.
    assert narrow == pytest.approx(3.89 * 100, rel=0.02)
    assert wide > 3 * narrow


def test_rows_of_one_sequence_are_cut_apart():
    inputs = {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9]]),
        "labels": torch.tensor([[-100, 6, 7, -100, 9]]),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1]]),
        "cu_seq_lens_q": torch.tensor([0, 3, 5]),
    }
    rows = separate_rows(inputs)
    assert {name: value.tolist() for name, value in rows.items()} == {
        "input_ids": [[5, 6, 7], [8, 9, 0]],
        "labels": [[-100, 6, 7], [-100, 9, -100]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
    }
