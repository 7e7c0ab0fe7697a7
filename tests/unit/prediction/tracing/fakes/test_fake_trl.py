"""Steps of TRL's Trainers: their trace against the living bytes of a real step on the CPU."""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from trl.kernels import chunked_logprob

from jobs.finetuning.trl.sft_rows import counting
from jobs.loops.accumulated_loss import LossScale
from jobs.loops.meter import Listener
from jobs.loops.trainer import COUNT
from jobs.spec import DataSpec, TrialSpec
from jobs.techniques.hooks import service
from jobs.trackers.ragged_data import RaggedData
from jobs.trackers.step_times import Steps
from jobs.trial.assembly import assemble
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.streams.length_streams import at_lengths
from orchestrator.prediction.streams.sized_stream import SizedStream
from orchestrator.prediction.tracing import fake_step
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.fakes import fake_trl
from orchestrator.prediction.tracing.rows import epoch_orders
from orchestrator.prediction.tracing.rows.trl_batches import TrlBatches
from tests.conftest import build_tiny_spec
from tests.support.living_bytes import living, real_peak
from tests.support.tiny_decoders import MODEL, RAGGED

GPU = load_gpu("h100")
TRL_TILE = 32768
"""Columns of a tile of logits, by TRL's own constant."""
TILE = 48
"""Columns with which the vocabulary has several tiles, and they take less than activations."""
ROWS = (0, 1, 2)
CPU = torch.device("cpu")
LORA = {"adapter": "lora_r8", "activations": "checkpoint"}
CASES: dict[str, dict[str, Any]] = {
    "full": {"loop": "trl_sft"},
    "dft": {"loop": "trl_sft(loss_type=dft)"},
    "lora": {"loop": "trl_sft", **LORA},
    "packed": {"loop": "trl_sft", "batching": "packed_whole_rows"},
    "padding free": {"loop": "trl_sft", "batching": "padding_free", "activations": "checkpoint"},
    "reference off": {"loop": "trl_dpo", **LORA},
    "reference model": {"loop": "trl_dpo(loss_type=ipo,ld_alpha=0.5)"},
    "reference before": {"loop": "trl_dpo(precompute_ref_log_probs=true)", "adapter": "lora_r8"},
}
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def _spec(choices: dict[str, Any]) -> TrialSpec:
    """Without kernels of attention, of which CUDA has others than a CPU."""
    spec = build_tiny_spec({"attention": "eager", "micro_batch": len(ROWS), **choices})
    return replace(spec, model=MODEL, data=DataSpec(synthetic=RAGGED))


def _real_peak(spec: TrialSpec, folder: str) -> int:
    """Of a micro-batch by TRL's unchanged Trainer."""
    setup, _ = assemble(spec, [Steps(), RaggedData()], lambda _: None, CPU, folder)
    trainer = service(fake_trl._TRAINERS[spec.settings.hooks["loop"].name])(setup)
    trainer.meter, trainer.loss_scale = Listener(), LossScale.as_declared(trainer)
    return real_peak(trainer, ROWS)


@contextmanager
def _on_a_cpu(recorder: Any):
    """TRL's code for devices without triton, on tensors without data."""
    from trl.trainer import dpo_trainer

    without_data = patch.object(
        dpo_trainer.DPOTrainer, "_precompute_ref_logps", fake_trl._without_data
    )
    with without_data, patch.object(dpo_trainer, "hash_module", lambda _: ""):
        yield


@pytest.mark.parametrize("case", CASES)
def test_traced_step_takes_what_a_real_step_takes(case, monkeypatch, tmp_path):
    from trl.trainer import utils

    monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", TILE)
    spec = _spec(CASES[case])
    real = _real_peak(spec, str(tmp_path))
    monkeypatch.setattr(fake_step, "trl_on_cuda", _on_a_cpu)
    step = FakeStep(spec, GPU)
    first, _ = step.micro_batches(step.batches._batch(ROWS), samples=3, accumulated=False)
    _, weights = living(step.weights)
    assert living(first, weights)[0] == real


@pytest.mark.parametrize(
    ("batching", "tokens"), [("pad", "labels"), ("padding_free", "labels"), ("pad", "answers")]
)
def test_loss_on_a_gpu_takes_positions_with_a_label_alone(batching, tokens):
    loop = "trl_sft" if tokens == "labels" else "trl_dpo(precompute_ref_log_probs=true)"
    step = FakeStep(_spec({"loop": loop, "batching": batching}), GPU)
    batch = step.batches._batch(ROWS)
    first, _ = step.micro_batches(batch, samples=3, accumulated=False)
    mask = "completion_mask" if tokens == "answers" else "labels"
    learned = batch.tensors[mask][:, 1:]
    rows = int((learned > 0 if tokens == "answers" else learned != -100).sum())
    sizes = [own.integers for own in first.events if isinstance(own, Allocation)]
    # A tile of logits in both passes, and none for positions without a label.
    assert sizes.count((rows * 4 * TRL_TILE,)) == 2
    assert len(first.work.eager.by_kind["loss"]) == 2


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("loop", ["trl_sft", "trl_dpo"])
def test_under_an_engine_trl_trains_a_model_of_16_bits(loop, ranks):
    choices = {"loop": loop, "adapter": "lora_r8", "precision": "bf16"}
    plain, engine = (_spec({**choices, **more}) for more in ({}, {"offload": "zero0"}))
    (alone,) = predict([plain], GPU)
    (own,) = predict([replace(engine, world_size=ranks)], GPU)
    assert own.allocated is not None, own.unknown
    assert own.allocated.high > 1.1 * own.allocated.bytes
    assert "autocast copies of weights" in alone.anatomy
    assert "autocast copies of weights" not in own.anatomy
    assert own.anatomy["weights"] <= alone.anatomy["weights"] / 2 + 512 * 64


@pytest.mark.parametrize("loop", ["trl_sft", "trl_dpo"])
def test_on_several_gpus_trl_averages_every_gradient(loop):
    plain = _spec({"loop": loop, "precision": "bf16"})
    alone, own = (predict([replace(plain, world_size=ranks)], GPU)[0] for ranks in (1, 2))
    trained = alone.anatomy["optimizer states"] / 2
    assert own.anatomy["communication buffers"] == pytest.approx(trained, rel=0.06)
    exchanged = own.step.sharing.exchanged.by_kind["all-reduce"]
    assert (exchanged[:, 1] * exchanged[:, 2]).sum() == pytest.approx(trained, rel=0.06)
    assert any("several GPUs, or under DeepSpeed" in note for note in own.notes)


def test_a_reference_of_a_model_with_a_scale_is_forecast():
    sizes = {"hidden_size": 64, "head_dim": 16, "num_hidden_layers": 2, "vocab_size": 99}
    spec = _spec({"loop": "trl_dpo"})
    model = replace(MODEL, architecture="gemma2", config={**MODEL.config, **sizes})
    (scaled,) = predict([replace(spec, model=model)], GPU)
    assert scaled.device is not None, scaled.unknown


def test_prediction_has_memory_and_time_and_a_wider_interval():
    sft, dpo = predict([_spec(CASES[name]) for name in ("lora", "reference off")], GPU)
    assert sft.device is not None, sft.unknown
    assert dpo.device is not None, dpo.unknown
    assert sft.step is not None
    assert dpo.step is not None
    assert any(note.startswith("loop: TRL's own code") for note in dpo.notes)
    # Two answers a pair, and a pass of the reference: it computes more than twice as much.
    assert dpo.step.eager.model_flop > 2 * sft.step.eager.model_flop


def test_blocks_of_whole_rows_are_packed_by_trl_and_count_as_rows():
    batches = TrlBatches(_spec(CASES["packed"]))
    blocks = len(batches._rows)
    assert blocks < RAGGED.samples
    assert blocks * batches.samples_per_row == pytest.approx(RAGGED.samples)
    counted = counting(lambda rows: {}, in_blocks=True)(list(batches._rows))
    assert counted[COUNT] == RAGGED.samples


@pytest.mark.parametrize(
    ("loop", "batching"),
    [("trl_sft", "pad"), ("trl_sft", "packed_whole_rows"), ("trl_dpo", "pad")],
)
def test_sizes_of_real_batches_follow_from_few_traced_ones(loop, batching, monkeypatch):
    # Tiles of few positions, so that small batches have several.
    monkeypatch.setattr(chunked_logprob, "TOKEN_CHUNK_SIZE", 16)
    spec = _spec({"loop": loop, "batching": batching, "micro_batch": 2})
    step = FakeStep(spec, GPU)
    batches = step.batches

    def traced(batch, samples):
        return step.micro_batches(batch, samples=samples, accumulated=False)

    rows = epoch_orders._rows(spec, batches.lengths, spec.measure.seed)
    steps = epoch_orders._shapes(spec, batches.lengths, batches.collate, rows)
    shapes = [shape for own in steps for shape in own]
    assert len({shape.tiles for shape in shapes}) > 1
    sized = at_lengths(shapes, batches.of_shape, traced, GPU)
    for at in range(0, len(steps), 3):
        real, _ = traced(batches._batch(rows[2 * at : 2 * at + 2]), 2)
        # How the labels are shared between two answers, and how many texts a block has, are usual
        # ones: it is less than the 512 bytes to which the allocator rounds.
        assert sized(steps[at])[0].sizes == pytest.approx(SizedStream.of(real, GPU).sizes, abs=512)
