"""What has to hold for the run folder and the temporary files of a struck sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from orchestrator.running.observers.event_log import LOG
from orchestrator.storage.layout import RECORDS, TRIALS
from tests.chaos.killer.outcome import SweepOutcome

_CACHE = "torchinductor_"
"""What torch.compile keeps for all of a user's programs: a cache, one for each user."""


def judge(
    outcome: SweepOutcome, folder: Path, *, planned: Sequence[str], finished: Mapping[str, bytes]
) -> None:
    """Note what is lost, repeated or without a row in a run folder whose sweep has ended.

    ``finished``: trial -> its final record as it was first seen.
    """
    for trial_id, content in finished.items():
        path = folder / RECORDS / f"{trial_id}.json"
        if not path.exists():
            outcome.lost.append(f"{trial_id} was finished and is gone")
        elif path.read_bytes() != content:
            outcome.lost.append(f"{trial_id} was finished and is another record now")
    outcome.repeated += _repeated(folder)
    table = folder / TRIALS
    rows = []
    if table.exists():
        rows = pq.read_table(table)["trial_id"].to_pylist()
    for trial_id in planned:
        if rows.count(trial_id) != 1 or trial_id not in finished:
            outcome.without_row.append(f"{trial_id} has {rows.count(trial_id)} rows")


def _repeated(folder: Path) -> Iterator[str]:
    """Trials that were started after their final record was there."""
    ended: set[str] = set()
    log = folder / LOG
    if not log.exists():
        return
    for line in log.read_text().splitlines():
        event = _event(line)
        if event["event"] == "ended" and event["outcome"] != "skipped":
            ended.add(event["trial_id"])
        elif event["event"] == "started" and event["trial_id"] in ended:
            yield f"{event['trial_id']} was started again at {event['time']}"


def _event(line: str) -> Mapping[str, str]:
    """An event of the log; one that says nothing where a full disk cut the line."""
    try:
        event: Mapping[str, str] = json.loads(line)
    except ValueError:
        return {"event": ""}
    return event


def left_in(folder: Path) -> Iterator[str]:
    """What is left of temporary files."""
    for path in folder.iterdir():
        if not path.name.startswith(_CACHE):
            yield path.name
