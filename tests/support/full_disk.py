"""Trials on a small temporary disk of their own that is full, fills up, or has no inodes left.

``python -m tests.support.full_disk CASE`` needs a mount namespace: see ``command``. It prints a
JSON list with the outcome, rule and reason of each trial.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from jobs.isolation.slot import Slot, SlotDiedError
from tests.conftest import build_tiny_spec
from tests.support import light_parent

UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
SIZE = 2**20
INODES = 100


def command(case: str) -> list[str]:
    """Runs a case in a mount namespace, which ends with it."""
    return [*UNSHARE, sys.executable, "-m", "tests.support.full_disk", case]


def run(slot: Slot, act: str) -> list[str]:
    """Outcome, rule and reason of one trial."""
    spec = build_tiny_spec()
    try:
        record = slot.run(replace(spec, choices={**spec.choices, "act": act}), 60.0)
    except SlotDiedError as error:
        return ["slot died", error.rule, str(error)]
    return [record.outcome.value, record.rule, record.reason]


def fill_bytes(folder: Path) -> Path:
    """Leave no byte free; returns the file to remove."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**12))
        except OSError:
            return filler


def fill_inodes(folder: Path) -> Path:
    """Leave no inode free; returns a file to remove."""
    number = 0
    while True:
        filler = folder / f"filler-{number}"
        try:
            filler.touch()
        except OSError:
            return folder / "filler-0"
        number += 1


def main() -> None:
    """Run a case."""
    case = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        options = f"size={SIZE},nr_inodes={INODES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None
        with Slot(cpus=1, parent_command=light_parent.COMMAND) as slot:
            print(json.dumps(list(results(case, slot, Path(folder)))), flush=True)
        subprocess.run(["umount", "--lazy", folder], check=True)


def results(case: str, slot: Slot, folder: Path) -> list[list[str]]:
    """What came of each trial of the case."""
    if case == "the trial's own files":
        return [run(slot, "write"), run(slot, "end")]
    if case == "fills in mid-trial":
        failed = run(slot, "fill")
        return [failed, run(slot, "end")]
    slot.start()
    fill = fill_inodes if case == "no inodes" else fill_bytes
    filler = fill(folder)
    failed = run(slot, "end")
    filler.unlink()
    for file in folder.glob("filler-*"):
        file.unlink()
    return [failed, run(slot, "end")]


if __name__ == "__main__":
    main()
