"""What has to hold when a sweep has been through its faults: nothing lost, nothing twice, the table as undisturbed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as parquet

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.storage.run_metadata import read_records
from tests.chaos.scene import Scene

EQUAL = ("peak_allocated_bytes", "optimizer_class", "steps_counted")
"""Measurements that do not depend on the moment. The stand-in's are all equal."""


def lost(scene: Scene, seen: Mapping[Path, tuple[int, bytes]]) -> Iterator[str]:
    """Rows that were final once and are not what they were."""
    now = scene.finished()
    for path, was in seen.items():
        if now.get(path) != was:
            yield f"{path.name} was finished and has been {'changed' if path in now else 'lost'}"
    for path, content in scene.planted.items():
        if path.read_bytes() != content:
            yield f"{path.name} is somebody else's and was changed"


def rowless(folder: Path, planned: Sequence[TrialSpec]) -> Iterator[str]:
    """Planned trials without exactly one row, in the records and in the table."""
    rows = parquet.read_table(folder / "trials.parquet", columns=["trial_id"])[
        "trial_id"
    ].to_pylist()
    records = [record.trial_id for record in read_records(folder)]
    for spec in planned:
        for where, found in (("records", records), ("trials.parquet", rows)):
            if (count := found.count(spec.trial_id)) != 1:
                yield f"{spec.trial_id} has {count} rows in {where}"


def repeated(scene: Scene, seen: Mapping[Path, tuple[int, bytes]]) -> Iterator[str]:
    """Trials that were begun once more after their row was final."""
    for path, (written, _) in seen.items():
        for at, node in scene.control.starts(path.stem):
            if at * 1e9 > written:
                yield f"{path.stem} was begun on {node} {at - written / 1e9:.1f} s after its row was written"


def unwarned(scene: Scene, found: Mapping[str, TrialRecord]) -> Iterator[str]:
    """Rows measured on a GPU after somebody else took memory of it, which do not say so."""
    for node in scene.arena.nodes:
        since = scene.control.shared_since(node)
        for trial_id, record in found.items():
            here = (
                record.measurements.get("gpu_uuid", "").endswith(f"-{node}")
                and record.started_at > since
            )
            if here and not any(
                "shared" in warning for warning in record.measurements.get("warnings", ["shared"])
            ):
                yield f"{trial_id} was measured on {node}'s GPU beside somebody else, and does not say so"


def unlike(
    found: Mapping[str, TrialRecord],
    undisturbed: Mapping[str, TrialRecord],
    hurt: Mapping[str, Outcome],
    *,
    all_figures: bool,
) -> Iterator[str]:
    """Trials whose row is not the undisturbed sweep's; those in ``hurt`` have to have that outcome instead."""
    for trial_id, before in undisturbed.items():
        now, expected = found[trial_id], hurt.get(trial_id, Outcome.OK)
        if now.outcome is not expected:
            yield f"{trial_id} is {now.outcome} ({now.reason}), not {expected}"
        elif expected is Outcome.OK:
            names = _figures(before) if all_figures else EQUAL
            for name in names:
                value, was = now.measurements.get(name), before.measurements.get(name)
                if value != was:
                    yield f"{trial_id}: {name} is {value}, undisturbed {was}"
            if now.steps.get("loss") != before.steps.get("loss"):
                yield f"{trial_id}: its losses are not those of the undisturbed sweep"


def _figures(record: TrialRecord) -> set[str]:
    where = {"node", "gpu_uuid", "overhead_seconds", "slot_pid"}
    where |= {"gpu_used_before_bytes", "gpu_foreign_processes", "warnings"}
    return set(record.measurements) - where
