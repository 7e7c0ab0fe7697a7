"""The log of a sweep: a JSON object per event."""

import json
import os

from jobs.record import Outcome, TrialRecord, skipped, with_provenance
from orchestrator.running.observers.event_log import LOG, EventLog
from tests.conftest import build_tiny_spec

SPEC = build_tiny_spec()


def test_event_log_writes_a_line_per_event(tmp_path):
    log = EventLog(tmp_path, clock=lambda: 1e9)
    failed = TrialRecord(
        spec=SPEC, outcome=Outcome.FAILED, reason="why", environment={"gpu_model": "H200"}
    )
    failed = with_provenance(failed, slot_seconds=2.0, node="here", log_file="logs/a.txt")
    log.started(SPEC)
    log.ended(failed, measured=True)
    log.ended(skipped(SPEC, "dominated", "slower"), measured=False)
    log.message("a node joined")
    log.closed()
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert {line.pop("time") for line in lines} == {"2001-09-09T01:46:40.000+00:00"}
    trial = {"trial_id": SPEC.trial_id}
    assert lines == [
        {"event": "started", **trial, "choices": dict(SPEC.choices)},
        {
            "event": "ended",
            **trial,
            "outcome": "failed",
            "reason": "why",
            "slot_seconds": 2.0,
            "gpu_model": "H200",
            "node": "here",
            "log_file": "logs/a.txt",
        },
        {
            "event": "settled",
            **trial,
            "outcome": "skipped",
            "reason": "slower",
            "rule": "dominated",
        },
        {"event": "message", "text": "a node joined"},
    ]


def test_event_log_that_cannot_grow_raises_nothing(tmp_path):
    (tmp_path / LOG).mkdir()
    EventLog(tmp_path).started(SPEC)


def test_event_log_in_whose_place_a_pipe_lies_waits_for_no_reader(tmp_path):
    os.mkfifo(tmp_path / LOG)
    EventLog(tmp_path).message("nothing reads the pipe")
    assert (tmp_path / LOG).is_fifo()
