"""What can be seen of a sweep from outside: its log, its figures for Prometheus, and each trial's own output."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from orchestrator.analysis.summary import log_file

from jobs.record import Outcome, TrialRecord
from orchestrator.reporting import markdown
from orchestrator.reporting.html import page as html
from orchestrator.reporting.publish import summarize_folder
from orchestrator.running import prometheus
from orchestrator.running.event_log import LOG, EventLog
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import LAST_LINES, RunFolder
from tests.conftest import build_tiny_spec

TRIALS = [build_tiny_spec(repeat=number) for number in range(4)]


class Figure:
    """Stands in for a counter or a gauge of Ray's; all that were made are in ``known``."""

    known: Mapping[str, dict[tuple[str, ...], float]] = {}

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self._name, self._keys = name, tag_keys
        self.known = {**Figure.known, name: {}}
        Figure.known = self.known

    def inc(self, value: float, tags: Mapping[str, str]) -> None:
        values = Figure.known[self._name]
        place = tuple(tags[key] for key in self._keys)
        values[place] = values.get(place, 0.0) + value

    def set(self, value: float, tags: Mapping[str, str]) -> None:
        Figure.known[self._name][tuple(tags[key] for key in self._keys)] = value


def ended(number: int, outcome: Outcome = Outcome.OK, log: str = "") -> TrialRecord:
    """A trial's record, two seconds long."""
    ok = {"samples_per_second": 1.0, "peak_allocated_bytes": 1} if outcome is Outcome.OK else {}
    return TrialRecord(
        spec=TRIALS[number],
        outcome=outcome,
        reason="" if outcome is Outcome.OK else "why",
        measurements={"node": "here", **ok},
        environment={"gpu_model": "H200"},
        started_at=1.0,
        slot_seconds=2.0,
        log=log,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An empty run folder."""
    folder = RunFolder(tmp_path)
    with folder.locked():
        return folder


class Skipping(Grid):
    """A search that leaves out its last trial."""

    def skipped(self) -> list[TrialRecord]:
        last = self._waiting.pop(TRIALS[-1].trial_id, None)
        return (
            [TrialRecord(spec=last, outcome=Outcome.SKIPPED, rule="dominated", reason="why")]
            if last
            else []
        )


def test_the_log_and_the_figures_tell_every_trial_once(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "Counter", Figure)
    monkeypatch.setattr(prometheus, "Gauge", Figure)
    watchers = (EventLog(folder.path, clock=lambda: 1e9), prometheus.Metrics("name", len(TRIALS)))
    progress = Progress(len(TRIALS), 1, (), stream=io.StringIO())
    session = Session(
        Skipping(TRIALS), folder, progress, time_budget_seconds=None, watchers=watchers
    )
    assert session.reuse({TRIALS[0].trial_id: ended(0)}, [{"gpu_model": "H200"}], resume=True) == 1
    for spec in TRIALS[1:3]:
        assert session.begins(session.next_trials()) == (spec,)
    seen = Figure.known
    assert (seen["orchestrator_trials_waiting"], seen["orchestrator_trials_running"]) == (
        {("name",): 1},
        {("name",): 2},
    )
    session.ended(ended(1))
    session.ended(ended(2, Outcome.FAILED, log="Traceback"))
    session.account()

    lines = [json.loads(line) for line in (folder.path / LOG).read_text().splitlines()]
    assert {line["time"] for line in lines} == {"2001-09-09T01:46:40.000+00:00"}
    told = [(line["event"], line["trial_id"], line.get("outcome")) for line in lines]
    ids = [trial.trial_id for trial in TRIALS]
    assert told == [
        ("settled", ids[0], "ok"),
        ("started", ids[1], None),
        ("started", ids[2], None),
        ("ended", ids[1], "ok"),
        ("ended", ids[2], "failed"),
        ("settled", ids[3], "skipped"),
    ]
    assert (lines[4]["node"], lines[4]["log_file"]) == ("here", f"logs/{ids[2]}.txt")
    assert seen["orchestrator_trials"] == {
        ("name", "ok"): 2,
        ("name", "failed"): 1,
        ("name", "skipped"): 1,
    }
    assert seen["orchestrator_slot_seconds"] == {("name", "H200"): 4.0}
    assert seen["orchestrator_slot_seconds_saved"] == {("name",): 2.0}
    assert (seen["orchestrator_trials_waiting"], seen["orchestrator_trials_running"]) == (
        {("name",): 0},
        {("name",): 0},
    )


def test_a_log_that_cannot_grow_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    EventLog(tmp_path).started(TRIALS[0])


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.FAILED])
def test_what_a_trial_printed_is_kept_beside_its_record(
    outcome: Outcome, folder: RunFolder
) -> None:
    printed = "a warning\n" * 1000
    written = folder.write(ended(0, outcome, log=printed))
    name = f"logs/{TRIALS[0].trial_id}.txt"
    assert (folder.path / name).read_text() == printed
    assert folder.records() == {TRIALS[0].trial_id: written}
    assert written.measurements["log_file"] == name
    assert written.log == ("" if outcome is Outcome.OK else printed[-LAST_LINES:])


def test_the_report_links_the_output_of_what_went_wrong(folder: RunFolder) -> None:
    for number in (0, 1):
        folder.write(ended(number, Outcome.FAILED, log="Traceback"))
    folder.write(ended(2, Outcome.FAILED))
    summary = summarize_folder(folder.path)
    page = html.render(summary)
    for number in (0, 1):
        assert f'<a href="logs/{TRIALS[number].trial_id}.txt">' in page
    assert page.count('<a href="logs/') == 2
    assert "logs/" not in markdown.render(summary)


def test_only_a_run_folders_own_file_is_linked() -> None:
    assert log_file({"log_file": "logs/0123456789ab.txt"}) == "logs/0123456789ab.txt"
    for foreign in (
        None,
        "",
        "javascript:alert(1)",
        "logs/../../secret.txt",
        'logs/a.txt"',
        "/logs/a.txt",
    ):
        assert log_file({"log_file": foreign}) == ""
