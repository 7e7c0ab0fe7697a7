"""The benchmark of false alarms tells runs that are alike from runs that are not."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.false_alarms import compared
from tests.support.records import make_record, write_run


def test_repeats_alike_raise_none_and_a_planted_slowdown_does(tmp_path: Path) -> None:
    records = [
        make_record(
            micro_batch=2**size, repeat=repeat, measurements={"samples_per_second_ci95": 0.002}
        )
        for size in range(4)
        for repeat in range(3)
    ]
    run = write_run(tmp_path / "run", records)
    alike, slower = (
        list(compared(run, tmp_path / "a")),
        list(compared(run, tmp_path / "b", slower=0.05)),
    )
    assert [pair.found.matched for pair in alike] == [4, 4, 4]
    assert [pair.alarms for pair in alike] == [[], [], []]
    assert {change.kind for pair in slower for change in pair.found.changes} == {"slower"}
    assert [len(pair.alarms) for pair in slower] == [4, 4, 4]
