"""Habits that every verb shares: pipes, interruption, exit statuses, notes, remote code."""

import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import __main__, batch_size, predict, sweep, tune
from orchestrator.cli import VERBS, finish
from orchestrator.running.observers.progress import Progress
from orchestrator.running.run_lock import locked_run_folder
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.storage.location import location
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from tests.conftest import build_tiny_spec
from tests.support.commands import ROOT, python
from tests.support.records import make_record, write_run

QUICKSTART = str(ROOT / "configs/quickstart.yaml")
LONG = "x" * 300
DRY_RUN = ["orchestrator.sweep", "configs/quickstart.yaml", "--dry-run"]
REMOTE = "model: {task: causal-lm, name_or_path: ./mine, trust_remote_code: true}\n"


def checkpoint_config(folder: Path) -> Path:
    """A config whose checkpoint may bring code, and the checkpoint."""
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text('{"model_type": "gpt2"}')
    (folder / "mine" / "model.safetensors").touch()
    path = folder / "sweep.yaml"
    path.write_text(REMOTE)
    return path


def with_closed_pipe(*command: str, buffered: str = "") -> tuple[int, str]:
    """The exit status and stderr of a command whose reader has left before it begins."""
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    try:
        done = python(*command, stdout=write, env=environment)
    finally:
        os.close(write)
    return done.returncode, done.stderr


HEAVY = "torch ray transformers datasets pydantic pyarrow numpy scipy pandas matplotlib jinja2 rich"
HEAVY += " orchestrator.planning.config orchestrator.planning.plan orchestrator.planning.settings"
LOADED = """
import runpy, sys
try:
    runpy.run_module("orchestrator.{verb}", run_name="__main__", alter_sys=True)
finally:
    print(sorted(set("{heavy}".split()) & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("verb", VERBS)
def test_help_loads_no_library_and_no_plan_and_ends_with_its_pipe(verb):
    program = LOADED.format(verb=verb, heavy=HEAVY)
    assert with_closed_pipe("-c", program, "--help") == (141, "[]\n")


@pytest.mark.parametrize(
    ("command", "buffered"), [(["orchestrator"], ""), (DRY_RUN, ""), (DRY_RUN, "1")]
)
def test_closed_pipe_ends_a_verb_silently(command, buffered):
    assert with_closed_pipe("-m", *command, buffered=buffered) == (141, "")


def test_closed_pipe_does_not_keep_a_report_from_its_files(tmp_path):
    folder = write_run(tmp_path, [make_record()])
    command = ("-m", "orchestrator.report", str(folder), "--no-browser")
    assert with_closed_pipe(*command) == (141, "")
    assert (folder / "report.html").exists()


def test_output_to_a_full_disk_is_a_sentence():
    with open("/dev/full", "w") as full:
        done = python("-m", *DRY_RUN, stdout=full)
    assert (done.returncode, done.stderr) == (1, "cannot write: No space left on device\n")


def ending(error: BaseException | None = None, status: int = 0) -> Callable[[], int]:
    def main() -> int:
        if error is not None:
            raise error
        return status

    return main


@pytest.mark.parametrize(
    ("main", "status", "said"),
    [
        (ending(), 0, ""),
        (ending(status=3), 3, ""),
        (ending(KeyboardInterrupt()), 130, ""),
        (ending(IsADirectoryError(21, "Is a directory", "here")), 1, "here: Is a directory\n"),
        (lambda: sweep.main([QUICKSTART, "--output", LONG]), 1, f"{LONG}: File name too long\n"),
    ],
    ids=["done", "its own", "interrupted", "a folder", "output with too long a name"],
)
def test_verb_ends_with_its_exit_status(main, status, said, capfd):
    with pytest.raises(SystemExit) as ended:
        finish(main)
    assert (ended.value.code, capfd.readouterr().err) == (status, said)


def test_another_pipe_that_breaks_is_raised(capfd):
    with pytest.raises(BrokenPipeError):
        finish(ending(BrokenPipeError()))


class ClosedPipe(io.StringIO):
    """A stream whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_sweep_goes_on_when_its_progress_is_not_read(tmp_path):
    folder = RunFolder(tmp_path)
    trials = [build_tiny_spec(repeat=number) for number in range(3)]
    session = Session(Grid(trials), folder, [Progress(3, (), stream=ClosedPipe())])
    with folder.locked():
        while (spec := session.next_trial()) is not None:
            session.ended(TrialRecord(spec=spec, outcome=Outcome.FAILED))
    assert len(folder.records()) == 3


@pytest.mark.parametrize(
    ("main", "more", "status"),
    [
        (sweep.main, ["--dry-run"], 0),
        (batch_size.main, ["--dry-run"], 0),
        (predict.main, ["--trial", "none"], 2),
    ],
    ids=["sweep", "batch_size", "predict"],
)
def test_remote_code_needs_the_option_too(main, more, status, tmp_path, capsys):
    path = checkpoint_config(tmp_path)
    assert main([str(path), *more]) == 2
    assert "--trust-remote-code" in capsys.readouterr().err
    assert main([str(path), *more, "--trust-remote-code"]) == status
    assert ("no trial none" in capsys.readouterr().err) is bool(status)


def test_run_at_a_uri_is_downloaded_before_and_published_after(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    target = location("memory://bucket/run")
    first, second = make_record(micro_batch=1), make_record(micro_batch=2)

    for earlier, record in enumerate((first, second)):
        with locked_run_folder(target, resume=earlier > 0) as folder:
            assert len(folder.records()) == earlier
            folder.describe({"name": "run"})
            folder.write(record)
        shutil.rmtree(tmp_path / "runs")
    assert capsys.readouterr().err == "published to memory://bucket/run\n" * 2


def test_uri_that_cannot_be_written_is_a_sentence_before_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(RunFolderError, match="nosuch://bucket/run: "),
        locked_run_folder(location("nosuch://bucket/run"), resume=False),
    ):
        raise AssertionError("the run has begun")


def test_command_lists_every_verb_with_a_line():
    known = __main__.verbs()
    assert {verb for verb, line in known.items() if not 10 < len(line) < 120} == set()
    assert all(f"  {verb}" in __main__.usage() for verb in known)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 0, "usage: orchestrator VERB"),
        (["--help"], 0, "Exit status: 0 done"),
        (["swep"], 2, 'no verb "swep"; did you mean "sweep"? Valid choices: sweep'),
        (["__init__"], 2, 'no verb "__init__"'),
        (["../sweep"], 2, 'no verb "../sweep"'),
    ],
)
def test_command_without_a_verb(arguments, status, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["orchestrator", *arguments])
    assert __main__.main() == status
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["x.yaml", "--dryrun"], 'no option --dryrun; did you mean "--dry-run"?'),
        (["x.yaml", "more"], "nothing is expected at more"),
        (["x.yaml", "--time-budget", "5x"], "argument --time-budget: must be a time above zero"),
        (["x.yaml", "--recipe", "usal"], "'any'); did you mean \"usual\"?"),
        (["x.yaml", "--resume", "--fresh"], "--fresh: not allowed with argument --resume"),
        ([], "the following arguments are required: config"),
    ],
)
def test_wrong_option_is_one_line_with_what_may_be_meant(options, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        tune.main(options)
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert line.endswith("(--help lists the options)")


def test_interrupted_sweep_says_how_to_go_on(monkeypatch, capsys):
    end = SimpleNamespace(is_interrupted=True, failure="")
    monkeypatch.setattr("orchestrator.running.sweep_run.run_sweep", lambda _: end)
    report = SimpleNamespace(unwritten=())
    monkeypatch.setattr("orchestrator.reporting.publish.publish", lambda _: report)
    printed = "orchestrator.reporting.terminal.summary.print_summary"
    monkeypatch.setattr(printed, lambda *_, **__: None)
    start: Any = SimpleNamespace(folder=SimpleNamespace(path=Path()))
    options: Any = SimpleNamespace(as_json=False)
    none: Any = None
    assert sweep._SweepVerb(config=none, options=options).run(start) == 130
    assert "the same command with --resume" in capsys.readouterr().err


def test_command_runs_a_verb_as_python_does_and_lightly(tmp_path):
    program = """
import sys
from orchestrator.__main__ import run
try:
    run()
finally:
    heavy = {"ray", "torch", "transformers", "pandas", "pyarrow", "numpy", "peft"} & {*sys.modules}
    print(sorted(heavy), file=sys.stderr)
"""
    for verb, said in (("batch-size", "the batch size of "), ("tune", "")):
        done = python("-c", program, verb, *DRY_RUN[1:])
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "[]")
        assert done.stdout.startswith(f"quickstart: {said}")
    run = "docs/results/2026-11-21-docs_table-h200"
    done = python("-c", program, "recommend", run, "--export", str(tmp_path / "train"))
    assert "peft" not in done.stderr.splitlines()[-1]
    driver = (
        "import sys; from orchestrator.running import sweep_run; assert 'torch' not in sys.modules"
    )
    assert python("-c", driver).returncode == 0
    wrong = python("-m", "orchestrator", "sweep", "none.yaml")
    assert (wrong.returncode, wrong.stdout) == (2, "")
