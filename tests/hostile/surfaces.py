"""What shows, exports or executes a run, each with a judge: it must be inert or refuse."""

import ast
import contextlib
import importlib
import io
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.record import Outcome
from orchestrator import cli
from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.run_metadata import UnreadableRunError
from tests.support.commands import ROOT, python
from tests.support.guarded_export import CANARY, run_guarded
from tests.support.report_pages import watch

REFUSALS = (1, 2, 3)
"""Exit statuses of a verb that says no in a sentence."""
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What became of one run on one surface."""

    surface: str
    refused: bool
    wrong: str = ""
    """What went wrong; "" if the run was shown as text, or refused in a sentence."""


def findings(run: Path, plain: Path, work: Path) -> Iterator[Finding]:
    """Every verb on a run, in the folder ``work``; ``plain`` is a harmless run to compare with."""
    trials = _measured_trials(run)
    calls = {
        "report": ["report", str(run)],
        "report --json": ["report", str(run), "--json"],
        "recommend": ["recommend", str(run)],
        "recommend --json": ["recommend", str(run), "--json"],
        "compare": ["compare", str(plain), str(run), "--different-hardware"],
        "compare --markdown": ["compare", str(run), str(run), "--markdown"],
        "explain": ["explain", str(run), *trials[:2]],
    }
    for surface, (verb, *arguments) in calls.items():
        yield judged(surface, work, _verb(verb, arguments))
    yield _exported(run, work)


def _measured_trials(run: Path) -> list[str]:
    """Two trials that ``explain`` can compare, if the run can be read at all."""
    try:
        rows = load_dataset(run).rows
    except (OSError, UnreadableRunError):
        return ["0", "1"]
    measured = [row["trial_id"] for row in rows if row["outcome"] == Outcome.OK]
    return [*measured, "0", "1"][:2]


def _verb(verb: str, arguments: Sequence[str]) -> Callable[[], int]:
    module = importlib.import_module(f"orchestrator.{verb}")
    return lambda: int(module.main(arguments))


def judged(surface: str, work: Path, main: Callable[[], int]) -> Finding:
    """Run a verb as its command does, and look at its status, its output and its traces."""
    output = io.StringIO()
    status = None
    with (
        contextlib.chdir(work),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            cli.finish(main)
        except SystemExit as end:
            status = end.code
        except BaseException:  # whatever it is, a user would see a traceback
            return Finding(surface=surface, refused=False, wrong=traceback.format_exc()[-1500:])
    return Finding(
        surface=surface,
        refused=status in REFUSALS,
        wrong=_wrong(status, output.getvalue(), work, is_json="--json" in surface),
    )


def _wrong(status: Any, printed: str, work: Path, *, is_json: bool) -> str:
    if status not in (0, *REFUSALS):
        return f"exit status {status}"
    acting = _ACTING.search(printed)
    if acting:
        return f"printed a raw {acting[0]!r}"
    if status != 0 and not printed.strip():
        return "refused without a word"
    if status == 0 and is_json:
        start = printed.index("{")
        json.JSONDecoder().raw_decode(printed[start:])
    return _trace(work)


def _trace(work: Path) -> str:
    """Whether a payload was executed."""
    return "a payload was executed" if (work / CANARY).exists() else ""


def _exported(run: Path, work: Path) -> Finding:
    """Export the pick, and execute the script up to where it would begin to train."""
    surface = "recommend --export"
    folder = work / "train"
    finding = judged(surface, work, _verb("recommend", [str(run), "--export", str(folder)]))
    script = folder / "train.py"
    if finding.wrong or not script.is_file():
        return finding
    ast.parse(script.read_text())
    guarded = work / "guarded"
    run_guarded([script], guarded)
    return Finding(surface=surface, refused=False, wrong=_trace(guarded))


def job(run: Path, work: Path) -> Finding:
    """``python -m jobs`` on a record of the run."""
    record = sorted((run / "records").iterdir())[0]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = python("-m", "jobs", record, cwd=work, env=variables, errors="replace")
    wrong = _trace(work)
    if done.returncode not in (0, *REFUSALS):
        wrong = f"exit status {done.returncode}: {done.stderr[-300:]}"
    return Finding(surface="jobs", refused=done.returncode != 0, wrong=wrong)


def page(browser: Any, html: Path) -> Finding:
    """The report in a browser: no script of the run's, no request to anywhere, no error."""
    wrong = []
    opened = browser.new_page()
    watch(opened, wrong)
    opened.goto(html.as_uri())
    opened.wait_for_load_state()
    if opened.evaluate(f"typeof window.{CANARY}") != "undefined":
        wrong.append("a payload was executed")
    opened.close()
    return Finding(surface="report.html in a browser", refused=False, wrong="; ".join(wrong))
