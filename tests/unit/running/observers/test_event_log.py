"""The log of a sweep: a JSON object per event."""

import os

from jobs.record import Outcome, skipped, with_provenance
from orchestrator.running.observers.event_log import LOG, EventLog
from orchestrator.storage.run_folder import RunFolder
from tests.support.golden import assert_golden, without_ids
from tests.support.records import make_record

SPEC = make_record().spec


def test_event_log_writes_a_line_per_event(tmp_path):
    log = EventLog(RunFolder(tmp_path), clock=lambda: 1e9)
    failed = make_record(outcome=Outcome.FAILED, reason="why")
    log.started(SPEC)
    log.ended(with_provenance(failed, node="here", log_file="logs/a.txt"), measured=True)
    log.ended(skipped(SPEC, "dominated", "slower"), measured=False)
    log.message("a node joined")
    log.closed()
    assert_golden("event_log.jsonl", without_ids((tmp_path / LOG).read_text()))


def test_event_log_that_cannot_grow_raises_nothing(tmp_path):
    (tmp_path / LOG).mkdir()
    EventLog(RunFolder(tmp_path)).started(SPEC)


def test_event_log_in_whose_place_a_pipe_lies_waits_for_no_reader(tmp_path):
    os.mkfifo(tmp_path / LOG)
    EventLog(RunFolder(tmp_path)).message("nothing reads the pipe")
    assert (tmp_path / LOG).is_fifo()
