"""Trials whose temporary disk is full: the disk is named, and a resumed run repeats the trial."""

import errno
import json
import os
import subprocess
import tempfile

import pytest

from jobs.infrastructure import DISK_FULL
from jobs.isolation import prewarm
from jobs.record import Outcome
from tests.support import full_disk
from tests.support.commands import ran


@pytest.mark.parametrize(
    "case", ["no bytes", "no inodes", "fills in mid-trial", "the trial's own files"]
)
def test_trial_on_a_full_disk_is_to_be_repeated(case):
    try:
        subprocess.run([*full_disk.UNSHARE, "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces here")
    done = ran(*full_disk.command(case))
    assert done.returncode == 0, done.stderr
    (outcome, rule, reason), after = json.loads(done.stdout)
    assert (outcome, rule) == (Outcome.SKIPPED, DISK_FULL)
    assert not Outcome(outcome).is_final
    assert "(tmpfs) has" in reason
    assert "free and" in reason
    assert ("and 0 inodes" if case == "no inodes" else "has 0 B free") in reason
    assert after == [Outcome.OK, "", ""], "the same slot goes on once there is room"


def test_prewarming_on_a_full_disk_is_left_out(monkeypatch):
    def no_room(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", no_room)
    with prewarm.parents(cpus=1):
        assert prewarm.take_over(cpus=1) is None
