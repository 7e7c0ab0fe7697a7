"""What has to hold after any fault: finished trials stay, and each planned one has its row."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from orchestrator.storage.layout import TRIALS, record_files
from orchestrator.storage.record_reader import find_records, read_record


def final_records(folder: Path) -> dict[str, bytes]:
    """Trial -> its record, for those with a final one."""
    found = {}
    for path in record_files(folder):
        record = read_record(path)
        if record is not None and record.outcome.is_final:
            found[path.stem] = path.read_bytes()
    return found


def lost(folder: Path, first_seen: Mapping[str, bytes]) -> Iterator[str]:
    """Finished trials whose record is not what it was when it was first seen."""
    now = final_records(folder)
    for trial_id, was in first_seen.items():
        if now.get(trial_id) != was:
            what = "another record now" if trial_id in now else "gone"
            yield f"{trial_id} was finished and is {what}"


def without_row(folder: Path, planned: Iterable[str]) -> Iterator[str]:
    """Planned trials without exactly one row, in the records or in the table."""
    rows = []
    if (folder / TRIALS).exists():
        rows = pq.read_table(folder / TRIALS, columns=["trial_id"])["trial_id"].to_pylist()
    records = [record.trial_id for record in find_records(folder).records]
    for trial_id in planned:
        for where, listed in (("records", records), (TRIALS, rows)):
            if listed.count(trial_id) != 1:
                yield f"{trial_id} has {listed.count(trial_id)} rows in {where}"
