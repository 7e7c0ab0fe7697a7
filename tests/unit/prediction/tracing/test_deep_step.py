"""Steps of models with many equal layers, against those that run through all of them."""

from unittest.mock import patch

import pytest

from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import quiet_libraries, traced_step
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.shared import Shared
from orchestrator.prediction.tracing.deep_step import DeepStep
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.fakes.fake_ranks import fake_ranks
from orchestrator.prediction.tracing.known_results import KnownResults
from tests.support.config_files import config_of
from tests.unit.prediction.streams.test_deep_stream import _renumbered

SIZES = "hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, vocab_size: 200"
LLAMA = f"{{task: causal-lm, architecture: llama, config: {{{SIZES}, num_hidden_layers: 6}}}}"
EIGHT = LLAMA.replace("num_hidden_layers: 6", "num_hidden_layers: 8")
CASES = {
    "packed": (LLAMA, "adapter: lora_r8_all_linear, base: bnb_4bit, activations: checkpoint", 5),
    # First with two and three layers, of which the last is not as the others.
    "offloaded checkpoints": (EIGHT, "adapter: lora_r8, activations: checkpoint_offload", 5 + 7),
    "frozen": (LLAMA, "trainable: {matching: {patterns: ['layers.[0-2].']}}", 6),
    "encoder": (
        f"{{task: sequence-classification, architecture: bert, config: {{{SIZES},"
        " num_hidden_layers: 7}}",
        "precision: fp16, activations: checkpoint",
        5,
    ),
    "experts": (
        f"{{task: causal-lm, architecture: mixtral, config: {{{SIZES}, num_key_value_heads: 2,"
        " num_local_experts: 4, num_hidden_layers: 6}}",
        "precision: bf16",
        5,
    ),
    "by turns": (
        f"{{task: causal-lm, architecture: gemma2, config: {{{SIZES}, num_key_value_heads: 2,"
        " head_dim: 16, num_hidden_layers: 12}}",
        "precision: bf16",
        10,
    ),
    "ddp": (LLAMA, "precision: bf16, sharding: ddp", 5),
    "zero": (LLAMA, "precision: bf16, sharding: zero2", 5),
    "fsdp": (EIGHT, "precision: bf16, sharding: fsdp2_full", 7),
    "fsdp with checkpoints": (EIGHT, "sharding: fsdp2_grad_op, activations: checkpoint", 7),
    "loss of TRL": (LLAMA, "precision: bf16, loop: trl_sft, batching: packed_whole_rows", 5),
    "reference of TRL": (LLAMA, "loop: trl_dpo, adapter: lora_r8, activations: checkpoint", 5),
    "one differs": (
        "{task: seq2seq-lm, architecture: t5, config: {d_model: 64, d_ff: 96, num_heads: 4,"
        " num_layers: 6, vocab_size: 200}}",
        "precision: bf16",
        6,
    ),
}
"""Name -> model, axes, and how many layers are traced."""


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("case", CASES)
def test_deep_step_has_the_events_and_the_work_of_the_whole_step(case, tmp_path):
    model, axes, layers = CASES[case]
    data = "data: {synthetic: {sequence_length: 32, samples: 8}}"
    gpus = 1 + ("sharding" in axes)
    resources = f"resources: {{gpus_per_trial: {gpus}}}"
    text = f"model: {model}\n{data}\n{resources}\naxes: {{micro_batch: [2], {axes}}}"
    [spec] = plan(config_of(tmp_path, text)).trials
    gpu, traced = load_gpu("h200"), []
    trace = FakeStep.micro_batches

    def counted(step, *args, **kwargs):
        traced.append(step.model.config.num_hidden_layers)
        return trace(step, *args, **kwargs)

    with quiet_libraries(), fake_ranks(gpus):
        deep, whole = DeepStep(spec, gpu, KnownResults(), {}), FakeStep(spec, gpu)
        with patch.object(FakeStep, "micro_batches", counted):
            found = deep.micro_batches(deep.batches.worst(2), samples=2, accumulated=True)
        expected = whole.micro_batches(whole.batches.worst(2), samples=2, accumulated=True)
    assert sum(traced) == layers
    assert deep.picks == whole.picks
    for own, other in zip(found, expected, strict=True):
        assert _renumbered(own)[0] == _renumbered(other)[0]
        assert own.kernels == other.kernels
        assert _totals(own.work) == pytest.approx(_totals(other.work))


@pytest.mark.parametrize(
    ("case", "differing", "built_whole"),
    [
        # Alone, each of the two ways builds the six layers itself, as it runs through all of them.
        ("frozen", "attention: [auto, unmasked]", 4),
        # Of a shared model, the second way builds a part alone.
        ("by turns", "activations: [checkpoint, keep]", 3),
    ],
)
def test_later_step_has_the_whole_model_of_the_first_and_runs_its_own(
    case, differing, built_whole, tmp_path
):
    model, axes, _ = CASES[case]
    data = "data: {synthetic: {sequence_length: 32, samples: 8, padding: 0.5}}"
    text = f"model: {model}\n{data}\naxes: {{micro_batch: [2], {differing}, {axes}}}"
    trials = plan(config_of(tmp_path, text)).trials
    shared, gpu, built, streams = Shared(), load_gpu("h200"), [], []
    build = FakeStep._built_model

    def counted(step):
        built.append(step._model_spec.config["num_hidden_layers"])
        return build(step)

    with quiet_libraries(), patch.object(FakeStep, "_built_model", counted):
        for spec in trials:
            for known in (shared, Shared()):
                with traced_step(spec, gpu, known) as step:
                    batch = step.batches.worst(2)
                    streams.append(step.micro_batches(batch, samples=2, accumulated=False))
    assert streams[0] == streams[1]
    assert streams[2] == streams[3]
    assert built.count(max(built)) == built_whole


def _totals(work):
    """Kernels, their operations and bytes, of the step as it is and compiled."""
    totals = {}
    for part in ("eager", "compiled", "forward"):
        own = getattr(work, part)
        totals[part] = own.model_flop
        for kind, rows in own.by_kind.items():
            for column in (0, 1, 3):
                totals[part, kind, column] = (rows[:, column] * rows[:, 2]).sum()
            totals[part, kind] = rows[:, 2].sum()
    return totals
