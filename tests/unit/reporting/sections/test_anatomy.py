"""Where memory and time go: each configuration by its own anatomy, or by its follow-up's."""

from pathlib import Path

import pytest

from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.reporting.content import Table
from orchestrator.reporting.sections import anatomy
from orchestrator.reporting.sections.anatomy import anatomies_of, asked_first
from tests.support.golden import assert_golden
from tests.support.records import make_anatomy, make_record, profile_of, write_run

PROFILED = make_record(micro_batch=4, speed=40.0, anatomy=make_anatomy())
SEARCHED = make_record(micro_batch=8, memory_mib=2000, speed=80.0)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load_dataset(write_run(tmp_path, [PROFILED, SEARCHED, profile_of(SEARCHED, 2.0)]))


def written(table: Table) -> list[list[str]]:
    return [[column.text(row) for column in table.shown_columns] for row in table.rows]


def test_anatomy_of_a_follow_up_has_the_speed_of_its_trial(dataset):
    result = anatomies_of(dataset, dataset.main.configurations)
    assert result.keys() == {PROFILED.trial_id, SEARCHED.trial_id}
    assert result[SEARCHED.trial_id].values("operations")["idle"] == pytest.approx(8 / 80 - 0.064)


def test_anatomy_of_the_trial_itself_comes_before_a_follow_ups(tmp_path):
    dataset = load_dataset(write_run(tmp_path, [PROFILED, profile_of(PROFILED, 2.0)]))
    (anatomy_shown,) = anatomies_of(dataset, dataset.main.configurations).values()
    assert anatomy_shown.values("memory") == PROFILED.anatomy.values("memory")


def test_anatomy_tables_are_the_recorded_text(dataset):
    lines = []
    for table in anatomy.make(dataset, dataset.main).tables:
        lines += [table.name, *(" | ".join(row).rstrip(" |") for row in written(table))]
    assert_golden("anatomy.txt", "\n".join(lines))


def test_asked_first_names_the_front_before_others(tmp_path):
    slow = [make_record(micro_batch=n, memory_mib=5000 + n) for n in range(1, 9)]
    best = make_record(micro_batch=16, memory_mib=900, speed=900.0)
    dataset = load_dataset(write_run(tmp_path, [*slow, best]))
    ordered = asked_first(dataset.main)
    assert ordered[0].trial_ids == (best.trial_id,)
    assert len(ordered) == 9
