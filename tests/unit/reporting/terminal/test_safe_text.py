"""Foreign text never acts on a terminal: not through a verb, a renderer or the Python API."""

import contextlib
import io
import sys
import unicodedata
from pathlib import Path

import pytest

from jobs.record import Outcome
from orchestrator import compare, explain, recommend
from orchestrator.api import load
from orchestrator.reporting.publish import publish
from orchestrator.reporting.terminal.safe_text import VisibleStream, safe_streams, visible
from orchestrator.running.observers.progress import Progress
from tests.support.records import make_record, write_run

EVIL = "\x1b[31m\x1b]0;owned\x07\u202eevil\x9b2J\ud800\u2028"


def acting_characters(text: str) -> list[str]:
    """What a terminal would act on: control characters, bidi controls, lone surrogates."""
    acting = []
    for character in text:
        is_control = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        is_bidi = unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF")
        is_isolate = unicodedata.bidirectional(character) in ("LRI", "RLI", "FSI", "PDI")
        if character not in "\n\t" and (is_control or is_bidi or is_isolate):
            acting.append(character)
    return acting


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = EVIL.replace("\ud800", "")  # no file can hold half a surrogate pair
    records = [
        make_record(optimizer=name, micro_batch=2),
        make_record(optimizer=f"{name} 2", micro_batch=4, memory_mib=3000, speed=300.0),
        make_record(outcome=Outcome.FAILED, reason=f"bad {name}", micro_batch=8),
    ]
    folder = tmp_path_factory.mktemp("hostile")
    publish(write_run(folder, records, name=name, command=name))
    return folder


def test_visible_shows_acting_characters_as_escapes():
    assert visible(EVIL) == "\\x1b[31m\\x1b]0;owned\\x07\\u202eevil\\x9b2J\\ud800\\u2028"
    assert visible(visible(EVIL)) == visible(EVIL)
    assert visible("a\tb\nc · naïve 漢字 العربية 👩‍🔬") == "a\tb\nc · naïve 漢字 العربية 👩‍🔬"


def test_visible_leaves_no_acting_character_of_all_unicode():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert acting_characters(visible(everything)) == []


def test_visible_stream_keeps_the_stream_below_it():
    below = io.StringIO()
    stream = VisibleStream(below)
    assert stream.write(EVIL) == len(EVIL)
    stream.writelines([EVIL, "\n"])
    assert acting_characters(below.getvalue()) == []
    assert not stream.isatty()


def test_safe_streams_replaces_them_and_puts_them_back():
    stdout, output = sys.stdout, io.StringIO()
    with contextlib.redirect_stdout(output):
        with safe_streams(), safe_streams():
            print(EVIL)
        assert sys.stdout is output
    assert sys.stdout is stdout
    assert output.getvalue() == f"{visible(EVIL)}\n"


def test_streams_that_are_not_utf_8_print_everything(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with safe_streams():
        print("2 × 4 · ±1 % → ≥ 日")
        sys.stdout.flush()
    assert written.getvalue() == b"2 x 4 - +/-1 % -> >= \\u65e5\n"


def test_stream_kept_beyond_its_time_is_closed():
    with safe_streams():
        kept = sys.stdout
        assert not kept.closed
    assert kept.closed
    assert not sys.stdout.closed


def test_verbs_print_a_hostile_run_without_acting(hostile_run, capsys):
    ids = [configuration.trial_ids[0] for configuration in load(hostile_run).configurations]
    recommend.main([str(hostile_run)])
    explain.main([str(hostile_run), *ids])
    compare.main([str(hostile_run), str(hostile_run)])
    compare.main([str(hostile_run), str(hostile_run), "--markdown"])
    captured = capsys.readouterr()
    assert captured.out.count("\\x1b") > 5
    assert acting_characters(captured.out + captured.err) == []
    assert acting_characters((hostile_run / "report.md").read_text()) == []


def test_progress_prints_hostile_reasons_without_acting():
    output = io.StringIO()
    record = make_record(outcome=Outcome.FAILED, reason=EVIL, optimizer=EVIL)
    progress = Progress(1, ("optimizer",), stream=output)
    progress.ended(record, measured=True)
    progress.closed()
    assert "\\x1b" in output.getvalue()
    assert acting_characters(output.getvalue()) == []
