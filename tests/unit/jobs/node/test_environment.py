"""What this machine reports about itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import os
from jobs.node import environment
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(environment.cores())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_cores_are_those_that_the_process_may_use() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1"
