"""Streams put together to training steps."""

import dataclasses

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation, Event, Free, Stream
from orchestrator.prediction.streams.replay import TrialStreams, replay
from orchestrator.prediction.streams.sized_stream import SizedStreams
from orchestrator.units import MIB

H200 = load_gpu("h200")
SIZED = SizedStreams(H200)


def _tensor(number: int, size: int, kind: str) -> Allocation:
    return Allocation(number=number, formula="tensor", integers=(size,), kind=kind)


def _stream(*events: Event) -> Stream:
    return Stream(events=events)


def _trial(first: Stream, later: Stream | None = None, accumulation: int = 1) -> TrialStreams:
    """A model of 64 MiB whose first update creates as many states."""
    return TrialStreams(
        model=_stream(_tensor(1, 64 * MIB, "weights")),
        first=first,
        later=later,
        accumulation=accumulation,
        first_update=_stream(_tensor(1, 64 * MIB, "optimizer states")),
        update=_stream(),
    )


def test_replay_peak_is_of_a_step_with_optimizer_states():
    first = _stream(_tensor(1, 96 * MIB, "saved activations"), Free(number=1))
    peaks = replay(_trial(first), SIZED)
    assert peaks.allocated == 224 * MIB
    assert peaks.at_peak == {
        "weights": 64 * MIB,
        "optimizer states": 64 * MIB,
        "saved activations": 96 * MIB,
    }


def test_replay_accumulation_keeps_the_inputs_of_every_micro_batch():
    first = _stream(_tensor(1, 32 * MIB, "inputs"))
    peaks = replay(_trial(first, later=first, accumulation=5), SIZED)
    assert peaks.at_peak["inputs"] == 5 * 32 * MIB


def test_replay_memory_taken_once_is_kept_and_not_taken_again():
    workspace = Allocation(
        number=1, formula="cublas", integers=(), kind="library workspaces", once="cublas forward"
    )
    peaks = replay(_trial(_stream(workspace)), SIZED)
    assert peaks.at_peak["library workspaces"] == H200.cublas_workspace_bytes


def test_replay_evaluation_follows_the_training_and_finds_its_states():
    first = _stream(_tensor(1, 32 * MIB, "saved activations"), Free(number=1))
    logits = _stream(_tensor(1, 96 * MIB, "temporary buffers"))
    trial = dataclasses.replace(_trial(first), evaluation=logits)
    peaks = replay(trial, SIZED)
    assert (peaks.allocated, peaks.is_of_evaluation) == (224 * MIB, True)
    assert peaks.at_peak["temporary buffers"] == 96 * MIB
    small = _stream(_tensor(1, 16 * MIB, "temporary buffers"))
    assert not replay(dataclasses.replace(trial, evaluation=small), SIZED).is_of_evaluation


def test_replay_of_an_emptied_cache_reserves_no_block_that_the_next_pass_cannot_use():
    # A second micro-batch needs 32 MiB more than the first, whose block it cannot use.
    first = _stream(_tensor(1, 32 * MIB, "saved activations"), Free(number=1))
    later = _stream(_tensor(1, 64 * MIB, "saved activations"), Free(number=1))
    kept = _trial(first, later=later, accumulation=2)
    emptied = dataclasses.replace(kept, empties_cache=True)
    peaks = [replay(own, SIZED).reserved for own in (kept, emptied)]
    # Weights, states and both blocks; of an emptied cache the larger one.
    assert peaks == [(64 + 64 + 32 + 64) * MIB, (64 + 64 + 64) * MIB]


def test_digest_is_equal_for_equal_trials_and_for_no_others():
    def trial(size: int = MIB, kind: str = "saved activations", accumulation: int = 1):
        first = _stream(_tensor(1, size, kind), Free(number=1))
        return _trial(first, later=first, accumulation=accumulation)

    evaluated = dataclasses.replace(trial(), evaluation=_stream(_tensor(1, MIB, "inputs")))
    emptied = dataclasses.replace(trial(), empties_cache=True)
    others = [trial(2 * MIB), trial(kind="inputs"), trial(accumulation=2), evaluated, emptied]
    trials = [trial(), *others]
    digests = [own.digest(SizedStreams(H200)) for own in trials]
    assert len(set(digests)) == len(trials)
    assert trial().digest(SIZED) == digests[0]
