"""Several searches as one: in turn, or one per GPU model, where no model waits for another."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Grid, Search
from orchestrator.search.best.search import BestSearch
from orchestrator.search.follow_up_plan import tie_break
from orchestrator.search.several import PerGpuModel, RoundRobin, for_gpu_model, per_gpu_model
from tests.conftest import build_tiny_spec
from tests.support.devices import Device, make_trial, run_to_the_end

PLAN = [build_tiny_spec(repeat=number) for number in range(12)]
SLOTS = {"A100": 1, "H200": 3}


def grids() -> PerGpuModel:
    """The plan once for each model."""
    return PerGpuModel({model: Grid(for_gpu_model(PLAN, model)) for model in SLOTS}, SLOTS)


def record_of(spec: TrialSpec) -> TrialRecord:
    """A trial that ended ok."""
    return TrialRecord(spec=spec, outcome=Outcome.OK, provenance=Provenance(slot_seconds=1.0))


def ask_all(search: Search) -> list[TrialSpec]:
    """Everything that it gives out at once."""
    asked = []
    while (trial := search.ask()) is not None:
        asked.append(trial)
    return asked


def test_per_gpu_model_gives_every_model_its_slots_and_one_more():
    outstanding = ask_all(grids())
    assert Counter(trial.gpu_model for trial in outstanding) == {"A100": 2, "H200": 4}


def test_per_gpu_model_does_not_wait_for_a_slow_model():
    search = grids()
    outstanding = ask_all(search)
    for _ in range(8):
        ended = next(trial for trial in outstanding if trial.gpu_model == "H200")
        outstanding.remove(ended)
        search.tell(record_of(ended))
        following = search.ask()
        assert following.gpu_model == "H200", "the A100 has all that it can run"
        outstanding.append(following)
    for trial in outstanding:
        search.tell(record_of(trial))
    assert Counter(trial.gpu_model for trial in search.pending()) == {"A100": 10}


def test_per_gpu_model_tells_a_model_only_its_own_records():
    search = grids()
    search.tell(record_of(for_gpu_model(PLAN, "H200")[0]))
    search.tell(record_of(PLAN[1]))
    assert Counter(trial.gpu_model for trial in search.pending()) == {"A100": 12, "H200": 11}


def test_per_gpu_model_asks_for_a_tie_break_in_a_row():
    rounds = tie_break([record_of(trial) for trial in PLAN[:2]], rounds=2)
    searches = {"A100": Grid(for_gpu_model(rounds, "A100")), "H200": Grid([])}
    asked = ask_all(PerGpuModel(searches, {"A100": 1, "H200": 1}))
    assert len(asked) == 4, "one slot runs all rounds"


class Summarized(Grid):
    """A search at its end."""

    def summary(self) -> Mapping[str, Any]:
        skipped = {"cannot_gain": 3, "does_not_fit": 1}
        return {"kind": "frontier", "planned": 9, "measured": 5, "skipped": skipped, "audit": {}}


def test_per_gpu_model_summary_adds_up_the_models():
    searches = {"A100": Summarized([]), "H200": Summarized([])}
    assert PerGpuModel(searches, SLOTS).summary() == {
        "kind": "frontier",
        "planned": 18,
        "measured": 10,
        "skipped": {"cannot_gain": 6, "does_not_fit": 2},
    }


def test_per_gpu_model_of_one_model_is_its_search():
    searches: Mapping[str, Search] = {"": Grid([make_trial(1, 1)])}
    assert per_gpu_model(searches, {"": 1}) is searches[""]


def test_per_gpu_model_keeps_the_answers_of_each_model_apart():
    trials = {model: [build_tiny_spec({"micro_batch": 1})] for model in ("A", "B")}
    searches = {model: BestSearch(listed) for model, listed in trials.items()}
    summary = PerGpuModel(searches, {"A": 1, "B": 1}).summary()
    assert summary["planned"] == 2
    assert summary["by_gpu_model"].keys() == {"A", "B"}
    assert len(summary["by_gpu_model"]["A"]["results"]) == 1


def test_round_robin_asks_in_turn_and_goes_on_with_those_left():
    searches = [Grid([make_trial(size, 1)]) for size in (1, 2)]
    searches.append(Grid([make_trial(size, 1) for size in (4, 8, 16)]))
    search = RoundRobin(searches)
    assert [size for size, _ in run_to_the_end(search, Device())] == [1, 2, 4, 8, 16]
    assert search.exhausted
