"""Trials on a small temporary disk of their own that is full, fills up, or has no inodes left.

``python -m tests.support.full_disk CASE`` needs a mount namespace: see ``command``. It prints a
JSON list with the outcome, rule and reason of each trial.
"""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from jobs.isolation.slot import Slot, SlotDiedError
from tests.conftest import build_tiny_spec
from tests.support import light_parent
from tests.support.disks import mounted, without_inodes, without_room

UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def command(case: str) -> list[str]:
    """Runs a case in a mount namespace, which ends with it."""
    return [*UNSHARE, sys.executable, "-m", "tests.support.full_disk", case]


def run(slot: Slot, act: str) -> list[str]:
    spec = build_tiny_spec()
    try:
        record = slot.run(replace(spec, choices={**spec.choices, "act": act}), 60.0)
    except SlotDiedError as error:
        return ["slot died", error.rule, str(error)]
    return [record.outcome.value, record.rule, record.reason]


def main(case: str) -> None:
    with tempfile.TemporaryDirectory() as folder, mounted(Path(folder), 2**20, inodes=100):
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None
        with Slot(cpus=1, parent_command=light_parent.COMMAND) as slot:
            print(json.dumps(list(results(case, slot, Path(folder)))), flush=True)


def results(case: str, slot: Slot, folder: Path) -> list[list[str]]:
    acts = {"the trial's own files": "write", "fills in mid-trial": "fill"}
    if case in acts:
        return [run(slot, acts[case]), run(slot, "end")]
    slot.start()
    with without_inodes(folder) if case == "no inodes" else without_room(folder):
        failed = run(slot, "end")
    return [failed, run(slot, "end")]


if __name__ == "__main__":
    main(sys.argv[1])
