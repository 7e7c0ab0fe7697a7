"""``import orchestrator``: light until asked, and then a run's questions answered as in a notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs" / "results" / "2026-11-21-docs_table-h200"
HEAVY = ("pyarrow", "numpy", "pandas", "torch", "ray", "transformers", "jinja2", "matplotlib")


def test_importing_and_the_verbs_help_load_nothing_heavy() -> None:
    program = f"""
import sys, contextlib, io
import orchestrator
from orchestrator import compare, recommend
for verb in (recommend, compare):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        verb.main(["--help"])
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_runs_questions_are_answered(tmp_path: Path) -> None:
    run = orchestrator.load(RUN)
    assert isinstance(run, orchestrator.MeasuredRun)
    assert run.table.num_rows == len(run.rows)
    front = run.frontier()
    assert [p.memory_bytes for p in front] == sorted(p.memory_bytes for p in front)
    assert {id(p) for p in front} <= {
        id(p) for p in run.frontier(["samples_per_second", "joules_per_sample"])
    }
    assert {p.training for p in run.frontier()} == {""}
    assert len({p.training for p in run.frontier(any_training=True)}) > 1
    assert len(repr(run)) < 200
    shown = run._repr_html_()
    assert all(run.label(p) in shown for p in front)
    answer = run.recommend(memory_bytes=8 * 2**30)
    assert answer.best is not None
    assert run.label(answer.best.point) in str(answer)
    assert run.label(answer.best.point) in answer._repr_html_()
    assert tmp_path / "train.py" in run.export(answer.best, tmp_path)
    assert "no configuration changed" in str(run.compare(run))
    with pytest.raises(AttributeError, match="nothing"):
        _ = orchestrator.nothing
    with pytest.raises(FileNotFoundError):
        orchestrator.load(tmp_path / "nowhere")
