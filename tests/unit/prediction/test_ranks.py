"""Memory of a rank, by how several GPUs share the states of a training."""

import functools
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import Prediction
from orchestrator.prediction.streams.affine_stream import Allocation, Free, Stream
from orchestrator.prediction.zero_reduction import Reduction, without_gradients
from tests.support.commands import ROOT
from tests.support.config_files import config_of

MEASURED = ROOT / "tests" / "data" / "two_gpus_h100" / "trials.parquet"
RANKS = 4
BLOCK = 4 * 256**2 + 3 * 256 * 512 + 2 * 256
"""Parameters of a block: attention with a head for each key, a gated product, two norms."""
PARAMETERS = 2 * BLOCK + 256 + 2 * 1024 * 256
DECODER = f"""
model:
  task: causal-lm
  architecture: llama
  config: {{vocab_size: 1024, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 2,
           num_attention_heads: 4, max_position_embeddings: 64, tie_word_embeddings: false}}
data: {{synthetic: {{sequence_length: 64}}}}
resources: {{gpus_per_trial: {RANKS}}}
baseline: {{precision: bf16}}
axes: {{sharding: [none, ddp, fsdp2_grad_op, fsdp2_full, zero1, zero3]}}
trials: [{{sharding: fsdp2_full, accumulation: 2}}, {{sharding: zero1, accumulation: 2}}]
"""


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """A function from a sharding and an accumulation to what is predicted of each rank."""
    trials = plan(config_of(tmp_path_factory.mktemp("config"), DECODER)).trials
    predicted = predict(trials, load_gpu("h200"))
    by_choices = {(own.choices["sharding"], own.choices["accumulation"]): own for own in predicted}
    return lambda sharding, accumulation=1: by_choices[sharding, accumulation]


def allocated(prediction: Prediction) -> int:
    assert prediction.allocated is not None, prediction.unknown
    return prediction.allocated.bytes


@pytest.mark.parametrize("sharding", ["fsdp2_grad_op", "fsdp2_full", "zero3"])
def test_sharded_parameters_and_states_are_a_ranks_share(of, sharding):
    whole, own = of("none").anatomy, of(sharding).anatomy
    # DeepSpeed keeps 16-bit weights, and the 32-bit ones among the optimizer's states.
    weights, states = (2, 12) if sharding == "zero3" else (4, 8)
    assert own["weights"] == pytest.approx(weights * PARAMETERS / RANKS, rel=0.02)
    assert own["optimizer states"] == pytest.approx(states * PARAMETERS / RANKS, rel=0.02)
    assert whole["weights"] == pytest.approx(4 * PARAMETERS, rel=0.02)


def test_zero1_shards_states_alone(of):
    own = of("zero1").anatomy
    assert own["weights"] == pytest.approx(2 * PARAMETERS, rel=0.02)
    assert own["optimizer states"] == pytest.approx(12 * PARAMETERS / RANKS, rel=0.02)


def test_ddp_has_all_states_and_a_bucket_for_every_gradient(of):
    whole, own = of("none").anatomy, of("ddp").anatomy
    assert own["optimizer states"] == whole["optimizer states"]
    assert own["communication buffers"] == pytest.approx(4 * PARAMETERS, rel=0.02)


def test_parameters_stay_gathered_only_without_resharding(of):
    gathered = [of(own).anatomy["gathered parameters"] for own in ("fsdp2_grad_op", "fsdp2_full")]
    # The last norm and the output layer are never gathered again in the backward pass.
    assert gathered[0] == pytest.approx(2 * PARAMETERS, rel=0.02)
    assert gathered[0] - gathered[1] >= 2 * BLOCK


@pytest.mark.parametrize("sharding", ["fsdp2_full", "zero1"])
def test_whole_gradients_are_kept_while_accumulating(of, sharding):
    more = allocated(of(sharding, 2)) - allocated(of(sharding))
    assert more >= 2 * PARAMETERS * (1 - 1 / RANKS)


AGAIN = 2 * (2 * BLOCK + 1024 * 256)
"""Bytes of blocks and embeddings, which FSDP2 gathers again in a backward pass."""


@pytest.mark.parametrize(
    ("sharding", "accumulation", "reduced", "scattered", "gathered"),
    [
        ("ddp", 1, 4 * PARAMETERS, 0, 0),
        ("fsdp2_grad_op", 1, 0, 2 * PARAMETERS, 2 * PARAMETERS),
        ("fsdp2_full", 1, 0, 2 * PARAMETERS, 2 * PARAMETERS + AGAIN),
        # Gradients are scattered once a step, parameters gathered in every micro-batch.
        ("fsdp2_full", 2, 0, 2 * PARAMETERS, 4 * PARAMETERS + 2 * AGAIN),
        ("zero1", 1, 2 * PARAMETERS, 0, 2 * PARAMETERS),
        ("zero1", 2, 2 * PARAMETERS, 0, 2 * PARAMETERS),
        ("zero3", 1, 0, 2 * PARAMETERS, 4 * PARAMETERS),
    ],
)
def test_ranks_exchange_gradients_and_parameters(
    of, sharding, accumulation, reduced, scattered, gathered
):
    by_kind = of(sharding, accumulation).step.sharing.exchanged.by_kind
    nbytes = {kind: float((rows[:, 1] * rows[:, 2]).sum()) for kind, rows in by_kind.items()}
    small = 0.01 * PARAMETERS  # the norm of all gradients, unused parameters
    assert nbytes.get("all-reduce", 0) == pytest.approx(reduced, rel=0.02, abs=small)
    assert nbytes.get("reduce-scatter", 0) == pytest.approx(scattered, rel=0.02)
    assert nbytes.get("all-gather", 0) == pytest.approx(gathered, rel=0.02)


def test_zero2_adds_each_micro_batch_to_the_partition():
    reduction = Reduction(stage=2, bucket_bytes=250, partition_bytes=50)
    events = reduction.of_step(stream(), stream()).events
    taken = {event.number: event for event in events if isinstance(event, Allocation)}
    assert len(taken) == sum(isinstance(event, Allocation) for event in events)
    freed = [event.number for event in events if isinstance(event, Free)]
    assert len(freed) == len(set(freed)) == len(taken) - 1
    (left,) = taken.keys() - set(freed)
    assert taken[left].integers == (50,)
    # The update begins with what is left.
    ended = without_gradients(reduction.of_step(stream(), stream()))
    assert sum(isinstance(event, Free) for event in ended.events) == len(taken)


def test_single_rank_reduces_in_its_bucket():
    reduction = Reduction(stage=2, bucket_bytes=250, buckets=2, partition_bytes=50, is_alone=True)
    taken = [own for own in reduction.of(stream()).events if isinstance(own, Allocation)]
    assert [own.integers[0] for own in taken] == [100, 100, 500, 100, 100, 50]


def test_first_gradient_lives_until_the_bucket_has_it():
    events = Reduction(stage=2, bucket_bytes=250, partition_bytes=50).of(stream()).events
    bucket = next(own.number for own in events if getattr(own, "integers", 0) == (250,))
    order = [own.number for own in events]
    freed = next(at for at, own in enumerate(events) if own == Free(number=1))
    assert order.index(1) < order.index(bucket) < freed


def stream() -> Stream:
    """Three gradients of 100 bytes each, and an activation that is freed after the first."""
    kinds = ("saved activations", *["gradients"] * 3)
    taken = [
        Allocation(number=number, formula="tensor", integers=(100,), kind=kind)
        for number, kind in enumerate(kinds)
    ]
    return Stream(events=(*taken[:2], Free(number=0), *taken[2:]))


@pytest.mark.parametrize(
    ("stage", "sizes"),
    [
        # All gradients, then the bucket. Two are reduced by a copy, then the third.
        (1, [100, 100, 250, 100, 100, 200, 50, 100]),
        (2, [100, 100, 250, 100, 100, 200, 50, 100]),
        # The partition is there before.
        (3, [250, 100, 100, 100, 100, 200, 100]),
    ],
)
def test_reduction_copies_each_bucket_and_keeps_the_partition(stage, sizes):
    reduced = Reduction(stage=stage, bucket_bytes=250, partition_bytes=50).of(stream())
    taken = [event for event in reduced.events if isinstance(event, Allocation)]
    assert [event.integers[0] for event in taken] == sizes
    freed = {event.number for event in reduced.events if isinstance(event, Free)}
    left = [event.integers[0] for event in taken if event.number not in freed]
    assert left == [50] * (stage < 3)


def test_stage_1_frees_gradients_only_after_the_backward_pass():
    def living(stage: int) -> int:
        events = Reduction(stage=stage, bucket_bytes=250, partition_bytes=50).of(stream()).events
        alive: set[int] = set()
        most = 0
        for event in events:
            if isinstance(event, Allocation) and event.kind == "gradients":
                alive.add(event.number)
            most = max(most, len(alive))
            if isinstance(event, Free):
                alive.discard(event.number)
        return most

    assert [living(stage) for stage in (1, 2)] == [3, 2]


@functools.cache
def measured_trials() -> list[tuple[TrialSpec, dict[str, int]]]:
    rows = {row["trial_id"]: row for row in pq.read_table(MEASURED).to_pylist()}
    trials = plan(load_config(Path(ROOT, "configs", "two_gpus.yaml"))).trials
    return [(spec, rows[spec.trial_id]) for spec in trials]


@pytest.mark.parametrize("sharding", ["fsdp2_full", "zero3"])
def test_peak_of_a_rank_is_within_two_percent_of_two_h100s(sharding):
    spec, row = next(own for own in measured_trials() if own[0].choices["sharding"] == sharding)
    (prediction,) = predict([spec], load_gpu("h100"))
    assert allocated(prediction) == pytest.approx(row["peak_allocated_bytes"], rel=0.02)
    assert prediction.reserved.bytes == pytest.approx(row["peak_reserved_bytes"], rel=0.05)
