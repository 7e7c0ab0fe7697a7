"""Which trials of a large plan are predicted, and in which order."""

from orchestrator.search.model.memory.prediction_shortlist import prediction_shortlist
from tests.benchmarks.grids import grid_of

TRIALS = grid_of(
    activations=("checkpoint", "keep"),
    attention=("auto", "unmasked", "sdpa_cudnn"),
    loss=("plain", "chunked"),
    loop=("trainer", "trainer_async"),
    micro_batch=tuple(range(1, 21)),
)


def test_sets_that_no_other_stands_for_are_predicted_first_and_single_changes_before_pairs():
    chosen = prediction_shortlist(TRIALS)
    sets: list[tuple[str, ...]] = []
    for trial in chosen:
        changed = tuple(str(trial.choices[axis]) for axis in ("activations", "loss", "attention"))
        if changed not in sets:
            sets.append(changed)
    assert sets[0] == ("checkpoint", "plain", "auto")
    assert set(sets[1:3]) == {("keep", "plain", "auto"), ("checkpoint", "chunked", "auto")}
    assert sets[3] == ("keep", "chunked", "auto")
    assert {trial.choices["loop"] for trial in chosen} == {"trainer"}
    assert [trial.micro_batch for trial in chosen[:3]] == [1, 4, 16]
