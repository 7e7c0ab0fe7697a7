"""Host memory of offloading: what the engine keeps there at least."""

from dataclasses import replace

import pytest
import torch

from jobs.spec import Needs
from orchestrator.prediction.streams.affine_stream import Stream
from orchestrator.prediction.tracing.fakes.fake_update import Updates
from orchestrator.prediction.zero import ZeroEngine, trial_streams
from orchestrator.units import MIB


@pytest.mark.parametrize(
    ("optimizer", "weights", "given", "words"),
    [
        (False, False, 0, None),
        (True, False, 0, "at least 16 MiB of host memory"),
        # Weights that are not trained have no states, and are offloaded all the same.
        (True, True, 19 * MIB, "at least 20 MiB of host memory, more than resources.host_memory"),
        (True, True, 21 * MIB, "at least 20 MiB of host memory"),
    ],
)
def test_host_note_counts_states_of_trained_and_weights_of_all(
    tiny_spec, optimizer, weights, given, words
):
    engine = ZeroEngine(
        stage=3,
        optimizer_on_host=optimizer,
        weights_on_host=weights,
        bucket_elements=1,
        live_elements=1,
    )
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(2)))
    model[1].requires_grad_(False)
    spec = replace(tiny_spec(), needs=Needs(host_bytes=given))
    notes = engine.host_note(spec, model)
    assert bool(notes) == (words is not None)
    assert words is None or words in notes[0]
    assert not notes or ("more than" in notes[0]) == (0 < given < 20 * MIB)


@pytest.mark.parametrize(
    ("weights", "live", "resident"),
    [
        (False, 1, 8 * MIB),  # one rank has its own partition, and nothing to gather
        (True, 3 * MIB, 8 * MIB),
        (True, MIB, 4 * MIB),
    ],
)
def test_stage_3_on_one_gpu_has_all_weights_or_gathers_as_many_as_may_live(weights, live, resident):
    engine = ZeroEngine(
        stage=3,
        optimizer_on_host=True,
        weights_on_host=weights,
        bucket_elements=0,
        live_elements=live,
    )
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(2)))
    nothing = Stream(events=())
    updates = Updates(first=nothing, later=nothing, paged=())
    streams = trial_streams(model, engine, (nothing, None), updates, 1)
    assert sum(event.integers[0] for event in streams.model.events) == resident
