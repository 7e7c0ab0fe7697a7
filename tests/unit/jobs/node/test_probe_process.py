"""A probe in a process of its own: its output, its error, and the time limit."""

from __future__ import annotations

import sys
import time

import pytest

from jobs.node.probe_process import Probed, probe


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('fit')", Probed(output="fit\n")),
        ("raise ValueError('dead')", Probed(error="ValueError: dead")),
        ("import os; os._exit(3)", Probed(error="exit status 3")),
    ],
)
def test_probe_reports_output_or_error(code: str, expected: Probed) -> None:
    assert probe([sys.executable, "-c", code], 60.0) == expected


def test_probe_that_hangs_is_given_up() -> None:
    begin = time.monotonic()
    probed = probe(["sleep", "600"], 0.2)
    assert probed.error == "it did not end within 0.2 s"
    assert time.monotonic() - begin < 60.0
