"""Fused losses, regional compilation and activation budgets, trained for real on a tiny decoder."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, DataSpec, ModelSpec, SyntheticData, TrialSpec
from tests.conftest import build_tiny_spec
from tests.integration.conftest import assert_export_trains_as
from tests.support.tiny_decoders import LLAMA
from tests.support.vision_models import tiny_vision_model

TINY_DECODER = {
    **LLAMA,
    "hidden_size": 64,
    "intermediate_size": 256,
    "vocab_size": 2000,
    "tie_word_embeddings": True,
}


def decoder(choices: Mapping[str, Choice], architecture: str = "llama", **config: Any) -> TrialSpec:
    """A trial of a tiny decoder on 64 tokens; four samples in a micro-batch."""
    return replace(
        build_tiny_spec({"micro_batch": 4, **choices}),
        model=ModelSpec(
            task="causal-lm", architecture=architecture, config={**TINY_DECODER, **config}
        ),
        data=DataSpec(synthetic=SyntheticData(sequence_length=64, samples=64)),
    )


def peak(record: TrialRecord) -> int:
    return int(record.measurements["peak_allocated_bytes"])


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"accumulation": 2, "micro_batch": 2},
        {"loop": "accelerate"},
        {"adapter": "lora_r8_all_linear", "compile": "aot_eager"},
        {"compile": "aot_eager_regional"},
        {"activations": "checkpoint"},
    ],
    ids=lambda others: "-".join(map(str, others.values())) or "alone",
)
def test_chunked_loss_trains_as_the_plain_one(others, run):
    plain = run(decoder(others))
    chunked = run(decoder({**others, "loss": "chunked"}))
    assert plain.measurements["loss_implementation"] == "plain"
    assert chunked.measurements["loss_implementation"] == "chunked"
    assert chunked.steps["loss"] == pytest.approx(plain.steps["loss"], rel=1e-5)


@pytest.mark.parametrize("scale", [{"logits_scaling": 5.0}, {"logit_scale": 0.2}], ids=str)
def test_chunked_loss_of_scaled_logits_trains_as_the_plain_one(scale, run):
    architecture = "granite" if "logits_scaling" in scale else "cohere"
    plain, chunked = (
        run(decoder({"loss": loss}, architecture, **scale)) for loss in ("plain", "chunked")
    )
    assert chunked.measurements["loss_implementation"] == "chunked"
    assert chunked.steps["loss"] == pytest.approx(plain.steps["loss"], rel=1e-5)


def test_chunked_loss_holds_less_memory(run):
    plain = run(decoder({}))
    chunked = run(decoder({"loss": "chunked"}))
    # The logits of 4 × 64 tokens over 2000 words in 32 bits; the plain loss holds several copies.
    logits = 4 * 64 * 2000 * 4
    assert peak(plain) - peak(chunked) > logits


def test_chunked_loss_of_capped_logits_is_unsupported(run):
    spec = decoder({"loss": "chunked"}, "gemma2", head_dim=32)
    assert "computes with its logits" in run(spec, Outcome.UNSUPPORTED).reason


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_regional_compilation_compiles_one_block_and_the_loss(architecture, run):
    eager = run(decoder({}, architecture))
    regional = run(decoder({"compile": "aot_eager_regional"}, architecture))
    # Both blocks share one graph; the loss is the other.
    assert regional.measurements["compiled_graphs"] == 2
    assert regional.measurements["compile_graph_breaks"] == 0
    if architecture == "llama":  # GPT-2 has dropout, which compiled code draws otherwise
        assert regional.steps["loss"] == pytest.approx(eager.steps["loss"], rel=1e-4)


@pytest.mark.parametrize("compiled", ["aot_eager", "aot_eager_regional"])
def test_activation_budget_saves_memory_and_keeps_losses(compiled, run):
    kept = run(decoder({"compile": compiled}))
    lean = run(decoder({"compile": compiled, "activations": "budget_0.07"}))
    assert kept.measurements["activation_memory_budget"] == 1.0
    assert lean.measurements["activation_memory_budget"] == 0.07
    assert peak(lean) < peak(kept)
    assert lean.steps["loss"] == pytest.approx(kept.steps["loss"], rel=1e-5)


def test_selective_checkpointing_lies_between_keeping_and_checkpointing(run):
    kept, selective, checkpointed = (
        run(decoder({"activations": activations, "loss": "chunked"}))
        for activations in ("keep", "checkpoint_selective", "checkpoint")
    )
    assert peak(checkpointed) < peak(selective) < peak(kept)
    assert selective.steps["loss"] == kept.steps["loss"]
    assert selective.measurements["checkpointed_layers"] > 0


OWN_WEIGHTS: dict[str, Choice] = {
    "trainable": "matching(patterns=[layers.0, norm])",
    "qat": "int8_int4(group_size=16)",
    "loss": "eaft(k=5)",
    "precision": "bf16",
}


def test_own_weights_rounding_and_weighted_loss_are_in_effect(run):
    record = run(decoder(OWN_WEIGHTS))
    row = record.measurements
    assert row["loss_implementation"] == "eaft"
    # Seven linear layers in each of two blocks; the output layer keeps its own.
    assert (row["fake_quantized_linears"], row["linear_layers"]) == (14, 15)
    # A block has four matrices of attention, three of its gated layer, and two norms. The other
    # block has two norms, too, and the model has one at its end.
    block = 4 * 64 * 64 + 3 * 64 * 256 + 2 * 64
    assert row["parameters_trainable"] == block + (2 + 1) * 64
    others = {"trainable": OWN_WEIGHTS["trainable"], "precision": "bf16"}
    plain = run(decoder(others))
    assert record.steps["loss"] != plain.steps["loss"]


def of_texts_alone() -> TrialSpec:
    """A vision-language model without a class for texts alone, trained on texts."""
    model = replace(tiny_vision_model("mistral3"), task="causal-lm")
    return replace(decoder({"adapter": "lora_r8"}), model=model)


def test_vision_language_model_trains_on_texts_alone(run):
    row = run(of_texts_alone()).measurements
    assert row["loss_implementation"] == "plain"
    # The model is whole: nothing of its vision tower is trained.
    assert row["vision_parameters_trainable"] == 0
    assert row["parameters_trainable"] > 0


def test_weights_in_fp16_have_16_bits_and_no_autocast(run):
    row = run(decoder({"precision": "fp16_weights"})).measurements
    assert (row["parameter_dtypes"], row["autocast"]) == ("float16", "off")
    # The moments; torch counts the steps in 32 bits.
    assert row["optimizer_state_dtypes"].startswith("float16")
    assert row["matmul_dtype"] == "float16"


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        decoder(OWN_WEIGHTS),
        of_texts_alone(),
        decoder({"compile": "aot_eager_regional", "activations": "budget_0.05", "loss": "chunked"}),
        decoder({"activations": "checkpoint_selective", "loss": "chunked", "loop": "accelerate"}),
    ],
    ids=["own_weights", "texts_alone", "regional", "selective"],
)
def test_exported_script_trains_with_the_trials_losses(spec, run, processes, tmp_path):
    losses = run(spec).steps["loss"]
    assert_export_trains_as(processes, spec, losses, tmp_path, rel=1e-4)


def test_missing_kernels_are_unsupported_with_the_install_command(run):
    if find_spec("triton") is not None:
        pytest.skip("this machine may have the packages")
    for choices, extra in (({"loss": "liger"}, "liger"), ({"loss": "cce"}, "cce")):
        record = run(decoder(choices), Outcome.UNSUPPORTED)
        assert f"training-frontier[{extra}]" in record.reason
