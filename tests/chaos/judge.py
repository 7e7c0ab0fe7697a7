"""What has to hold after a sweep's faults: nothing lost, nothing twice, the undisturbed table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as parquet

from jobs.flags import SHARED, has_any
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.record_reader import read_records
from tests.chaos.scene import Scene

EQUAL = ("peak_allocated_bytes", "optimizer_class", "steps_counted")
"""Measurements of real training that do not depend on the moment. The stand-in's are all equal."""
_OF_THE_MOMENT = {
    "gpu_uuid",
    "overhead_seconds",
    "gpu_used_before_bytes",
    "gpu_foreign_processes",
    "flags",
    "flag_values",
}
"""Measurements that say where a trial ran, and beside whom."""


def lost(scene: Scene, finished: Mapping[Path, tuple[int, bytes]]) -> Iterator[str]:
    """Records that were final once and are not what they were."""
    now = scene.finished()
    for path, was in finished.items():
        if now.get(path) != was:
            what = "changed" if path in now else "lost"
            yield f"{path.name} was finished and has been {what}"
    for path, content in scene.planted.items():
        if path.read_bytes() != content:
            yield f"{path.name} is another program's and was changed"


def without_one_row(folder: Path, planned: Sequence[TrialSpec]) -> Iterator[str]:
    """Planned trials without exactly one row, in the records and in the table."""
    table = parquet.read_table(folder / TRIALS, columns=["trial_id"])
    rows = table["trial_id"].to_pylist()
    records = [record.trial_id for record in read_records(folder)]
    for spec in planned:
        for where, listed in (("records", records), (TRIALS, rows)):
            count = listed.count(spec.trial_id)
            if count != 1:
                yield f"{spec.trial_id} has {count} rows in {where}"


def repeated(scene: Scene, finished: Mapping[Path, tuple[int, bytes]]) -> Iterator[str]:
    """Trials that were begun once more after their record was final."""
    for path, (written, _) in finished.items():
        for at, node in scene.control.starts(path.stem):
            late = at - written / 1e9
            if late > 0:
                yield f"{path.stem} was begun on {node} {late:.1f} s after its record was written"


def unflagged(scene: Scene, records: Mapping[str, TrialRecord]) -> Iterator[str]:
    """Records measured on a shared GPU that do not say so."""
    for node in scene.arena.nodes:
        since = scene.control.shared_since(node)
        for trial_id, record in records.items():
            has_flags = "flags" in record.measurements
            was_here = record.measurements.get("gpu_uuid", "").endswith(f"-{node}")
            was_shared = was_here and record.started_at > since
            if was_shared and has_flags and not has_any(record.flags, SHARED):
                yield f"{trial_id} was measured on {node}'s shared GPU, and has no flag for it"


def different(
    records: Mapping[str, TrialRecord],
    undisturbed: Mapping[str, TrialRecord],
    hurt: Mapping[str, Outcome],
    *,
    all_figures: bool,
) -> Iterator[str]:
    """Trials whose record is not the undisturbed sweep's.

    Those in ``hurt`` have to have that outcome instead.
    """
    for trial_id, before in undisturbed.items():
        now, expected = records.get(trial_id), hurt.get(trial_id, Outcome.OK)
        if now is None:
            yield f"{trial_id} has no record"
        elif now.outcome is not expected:
            yield f"{trial_id} is {now.outcome} ({now.reason}), not {expected}"
        elif expected is Outcome.OK:
            yield from _different_figures(now, before, all_figures=all_figures)


def _different_figures(
    now: TrialRecord, before: TrialRecord, *, all_figures: bool
) -> Iterator[str]:
    names = set(before.measurements) - _OF_THE_MOMENT if all_figures else EQUAL
    for name in names:
        value, was = now.measurements.get(name), before.measurements.get(name)
        if value != was:
            yield f"{now.trial_id}: {name} is {value}, undisturbed {was}"
    if now.steps.get("loss") != before.steps.get("loss"):
        yield f"{now.trial_id}: its losses are not those of the undisturbed sweep"
