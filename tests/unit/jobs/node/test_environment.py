"""What this machine says of itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COUNT = """
import os
from jobs.node import environment
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(environment.cores())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_cores_are_those_that_the_process_may_use() -> None:
    """Under Slurm or taskset the machine's other cores are somebody else's."""
    told = subprocess.run([sys.executable, "-c", COUNT], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "1"
