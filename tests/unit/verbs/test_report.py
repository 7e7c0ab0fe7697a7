"""report: exit statuses, and a summary on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import report
from tests.support.records import make_record, write_run


def test_report_prints_the_summary_and_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path, [make_record()])
    assert report.main([str(folder), "--no-browser"]) == 0
    printed = capsys.readouterr().out
    assert "1 trial: 1 ok" in printed
    assert "report.html" in "".join(printed.split())  # long paths are wrapped


def test_report_without_a_run_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main([str(tmp_path)]) == 2
    assert "no records and no table to report on" in capsys.readouterr().err
