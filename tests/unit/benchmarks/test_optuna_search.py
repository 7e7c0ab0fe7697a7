"""Optuna as a search: what its study is told, and how a configuration chooses it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from jobs.record import Outcome
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.search import optuna
from orchestrator.search.optuna import Optuna
from tests.benchmarks.grids import GIB, Table, make_record, make_spec, simulated
from tests.benchmarks.replay import front, replay

CONFIG = """
model: {task: causal-lm, architecture: llama}
axes: {micro_batch: [1, 2]}
"""


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_it_measures_its_share_and_the_same_again(sampler: str) -> None:
    def make(trials: object) -> Optuna:
        return Optuna(trials, sampler=sampler, share=0.3, seed=3)  # type: ignore[arg-type]

    found = replay(make, simulated())
    assert found.trials == len(set(found.asked)) == 87
    assert replay(make, simulated()).asked == found.asked
    assert (
        replay(lambda trials: Optuna(trials, share=0.3, seed=4), simulated()).asked != found.asked
    )


def test_every_kind_of_training_gets_its_share() -> None:
    table = simulated()
    asked = replay(lambda trials: Optuna(trials, share=0.25), table).asked
    kinds = [table[trial_id].spec.equivalence.partition(" · ")[2] for trial_id in asked]
    assert {kinds.count(kind) for kind in kinds} == {18}


def test_it_learns_where_the_frontier_is() -> None:
    """Forty-eight points, of which one for each of six sizes is on the frontier: chance would meet half of them."""
    table = _corner()
    points = {record.trial_id for record in front(table)}
    for seed in range(3):
        asked = replay(lambda trials, seed=seed: Optuna(trials, share=0.5, seed=seed), table).asked  # type: ignore[misc]
        assert len(points & set(asked)) >= 5


def _corner() -> Table:
    specs = [
        make_spec({"micro_batch": size, "workers": workers}, "exact")
        for size in range(1, 7)
        for workers in range(8)
    ]
    rows = [
        make_record(
            spec,
            (spec.micro_batch + int(str(spec.choices["workers"]))) * GIB,
            10.0 * spec.micro_batch,
            0,
            1.0,
        )
        for spec in specs
    ]
    return {record.trial_id: record for record in rows}


def test_out_of_memory_is_told_as_a_failed_trial() -> None:
    specs = [make_spec({"micro_batch": size}, "exact") for size in (1, 2, 4)]
    search = Optuna(specs, share=1.0)
    while (spec := search.ask()) is not None:
        fits = spec.micro_batch < 4
        search.tell(make_record(spec, GIB if fits else None, 1.0 if fits else None, 0, 1.0))
    [study] = search._studies.values()
    states = [trial.state.name for trial in study._study.trials]
    assert states.count("FAIL") >= 1
    assert {trial.values[0] for trial in study._study.trials if trial.state.name == "COMPLETE"} == {
        GIB
    }


def test_what_is_left_is_skipped_with_the_limit_as_its_reason() -> None:
    search = Optuna([make_spec({"micro_batch": size}, "exact") for size in (1, 2, 4, 8)], share=0.5)
    while (spec := search.ask()) is not None:
        search.tell(make_record(spec, GIB, 1.0, 0, 1.0))
    skipped = list(search.skipped())
    assert [(record.outcome, record.rule) for record in skipped] == [
        (Outcome.SKIPPED, "search_limit")
    ] * 2
    assert "2 of the 4 configurations" in skipped[0].reason


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("search: optuna", {"sampler": "tpe", "share": 0.25, "seed": 0}),
        (
            "search: {kind: optuna, sampler: nsga2, share: 1, seed: 7}",
            {"sampler": "nsga2", "share": 1.0, "seed": 7},
        ),
    ],
)
def test_a_configuration_chooses_it(tmp_path: Path, text: str, options: dict[str, object]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG + text)
    search = load_config(path).search
    assert (search.kind, search.options) == ("optuna", options)
    Optuna([], **search.options)


def test_its_options_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG + "search: {kind: frontier, share: 0.5}")
    with pytest.raises(ConfigError, match=r"share: only search: \{kind: optuna\} has this"):
        load_config(path)
    path.write_text(CONFIG + "search: {kind: grid, seed: 1}")
    with pytest.raises(
        ConfigError, match=r"seed: only search: \{kind: frontier or optuna\} has this"
    ):
        load_config(path)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    found = importlib.util.spec_from_file_location("again", Path(optuna.__file__))
    assert found is not None
    assert found.loader is not None
    with pytest.raises(ImportError, match="needs the package optuna: pip install optuna"):
        found.loader.exec_module(importlib.util.module_from_spec(found))
