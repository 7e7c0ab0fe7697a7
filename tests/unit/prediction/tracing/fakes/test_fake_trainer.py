"""What the Trainer adds to a model's pass: its trace beside a real step on the CPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from jobs.spec import DataSpec, TrialSpec
from jobs.trackers.step_times import Steps
from jobs.trial.assembly import assemble
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.tracing.fake_step import FakeStep
from tests.conftest import build_tiny_spec
from tests.support.living_bytes import living, plain_trainer, real_peak
from tests.support.tiny_decoders import LLAMA, MODEL, PADDED

GPU = load_gpu("h100")
ROWS = 3
TECHNIQUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "label smoothing": ({}, {"label_smoothing_factor": 0.1}),
    "label smoothing of an adapter": ({"adapter": "lora_r8"}, {"label_smoothing_factor": 0.1}),
    "noise": ({}, {"neftune_noise_alpha": 5.0}),
    "noise and an adapter": ({"adapter": "lora_r8"}, {"neftune_noise_alpha": 5.0}),
    "own weights": ({"trainable": "matching(patterns=[layers.1, lm_head])"}, {}),
    "own weights, recomputed": (
        {"trainable": "matching(patterns=[layers.1])", "activations": "checkpoint"},
        {},
    ),
    **{
        name: ({"adapter": f"lora(r=8,target_modules=all-linear,init_lora_weights={name})"}, {})
        for name in ("pissa", "pissa_niter_4", "olora")
    },
    "loha": ({"adapter": "loha"}, {}),
    "lokr": ({"adapter": "lokr"}, {}),
    "adalora": ({"adapter": "adalora(total_step=100)"}, {}),
    "experts with adapters": (
        {
            "adapter": "lora(r=4,target_modules=[q_proj],"
            "target_parameters=[mlp.experts.gate_up_proj,mlp.experts.down_proj])"
        },
        {},
    ),
}
"""Choices and training arguments."""
EXPERTS = replace(
    MODEL,
    architecture="qwen3_moe",
    config={
        **LLAMA,
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
)


def _spec(name: str) -> TrialSpec:
    """Without kernels of attention, of which CUDA has others than a CPU."""
    choices, arguments = TECHNIQUES[name]
    choices = {"attention": "eager", "micro_batch": ROWS, **choices}
    spec = build_tiny_spec(choices, training_arguments=arguments)
    model = EXPERTS if name.startswith("experts") else MODEL
    return replace(spec, model=model, data=DataSpec(synthetic=PADDED))


def _first(name: str) -> tuple[FakeStep, Any]:
    step = FakeStep(_spec(name), GPU)
    batch = step.batches.worst(ROWS)
    return step, step.micro_batches(batch, samples=ROWS, accumulated=False)[0]


@pytest.mark.parametrize("name", TECHNIQUES)
def test_traced_step_takes_what_a_real_step_takes(name, tmp_path):
    setup, _ = assemble(_spec(name), [Steps()], lambda _: None, torch.device("cpu"), str(tmp_path))
    real = real_peak(plain_trainer(setup), range(ROWS))
    step, first = _first(name)
    _, weights = living(step.weights)
    # But for a number, such as a loss.
    assert living(first, weights)[0] == pytest.approx(real, abs=4)


def _sizes(name: str) -> list[int]:
    events = _first(name)[1].events
    return [own.integers[0] for own in events if isinstance(own, Allocation) and own.integers]


def test_noise_takes_its_values_and_their_sum_with_the_embeddings():
    embedded = 4 * ROWS * PADDED.sequence_length * LLAMA["hidden_size"]
    assert _sizes("noise").count(embedded) == _sizes("plain").count(embedded) + 2


def test_label_smoothing_takes_seven_tensors_of_predicted_logits():
    predicted = 4 * ROWS * (PADDED.sequence_length - 1) * LLAMA["vocab_size"]
    # Forward: a contiguous copy, log-probabilities and their negative. Backward: zeros with the
    # gradients of the labels, their sum with those of all, its negative, and that of the logits.
    assert _sizes("label smoothing").count(predicted) == 7
    assert predicted not in _sizes("plain")


def test_predictions_have_a_time_and_states_of_trained_weights():
    names = ("plain", "noise", "own weights")
    plain, noise, trained = predict([_spec(name) for name in names], GPU)
    assert None not in (noise.step, trained.step)
    assert trained.anatomy["optimizer states"] < plain.anatomy["optimizer states"] / 2
