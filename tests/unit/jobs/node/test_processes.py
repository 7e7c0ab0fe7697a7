"""A probe in a process of its own: its output, its error, and the time limit."""

import re
import sys

import pytest

from jobs.node.processes import probe


def test_probe_returns_what_is_printed():
    assert probe([sys.executable, "-c", "print('fit')"], 60.0) == "fit\n"


@pytest.mark.parametrize(
    ("command", "seconds", "error"),
    [
        ([sys.executable, "-c", "raise ValueError('dead')"], 60.0, "ValueError: dead"),
        ([sys.executable, "-c", "import os; os._exit(3)"], 60.0, "exit status 3"),
        (["sleep", "600"], 0.2, "it did not end within 0.2 s"),
    ],
)
def test_probe_that_fails_or_hangs_raises(command, seconds, error):
    with pytest.raises(RuntimeError, match=f"^{re.escape(error)}$"):
        probe(command, seconds)
