"""``import orchestrator``: loads little until it is used, then answers questions about a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs" / "results" / "2026-11-21-docs_table-h200"
HEAVY = ("pyarrow", "numpy", "pandas", "torch", "ray", "transformers", "jinja2", "matplotlib")


@pytest.fixture(scope="module")
def run() -> orchestrator.Run:
    """A recorded run."""
    return orchestrator.load(RUN)


def test_import_and_help_of_verbs_load_nothing_heavy() -> None:
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


def test_run_tables_have_one_row_per_trial(run: orchestrator.Run) -> None:
    assert run.to_arrow().num_rows == len(run.dataset.rows) == len(run.to_pandas())
    assert len(repr(run)) < 200


def test_run_frontier_rises_in_memory_and_speed(run: orchestrator.Run) -> None:
    front = run.frontier()
    memories = [own.memory_bytes for own in front]
    speeds = [own.samples_per_second for own in front]
    assert len(front) > 1
    assert memories == sorted(memories)
    assert speeds == sorted(speeds)


def test_run_frontier_of_more_objectives_contains_the_plain_one(run: orchestrator.Run) -> None:
    plain = {run.label(own) for own in run.frontier()}
    wider = {run.label(own) for own in run.frontier(["samples_per_second", "joules_per_sample"])}
    assert plain <= wider


def test_run_frontier_has_one_training_recipe_unless_asked(run: orchestrator.Run) -> None:
    assert {own.training_recipe for own in run.frontier()} == {run.results.recipe}
    assert len({own.training_recipe for own in run.frontier(all_recipes=True)}) > 1


def test_run_shows_its_frontier_in_a_notebook(run: orchestrator.Run) -> None:
    shown = run._repr_html_()
    assert all(run.label(own) in shown for own in run.frontier())


def test_run_recommends_and_exports(run: orchestrator.Run, tmp_path: Path) -> None:
    answer = run.recommend(memory_bytes=8 * 2**30)
    assert answer.best is not None
    label = run.label(answer.best.configuration)
    assert label in str(answer)
    assert label in answer._repr_html_()
    assert tmp_path / "train.py" in run.export(answer.best, tmp_path)


def test_run_compared_with_itself_has_no_change(run: orchestrator.Run) -> None:
    assert not [change for change in run.compare(run).changes if change.is_regression]


def test_package_has_no_other_attributes(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = orchestrator.nothing
    with pytest.raises(FileNotFoundError):
        orchestrator.load(tmp_path / "nowhere")


def test_run_frontier_and_answers_leave_out_what_trains_wrongly(run: orchestrator.Run) -> None:
    assert any(own.trains_wrongly for own in run.configurations)
    assert not any(own.trains_wrongly for own in run.frontier(all_recipes=True))
    answer = run.recommend(memory_bytes=8 * 2**30, effective_batch=4, all_recipes=True)
    assert answer.best is not None
    assert not answer.best.configuration.trains_wrongly
    assert answer.recommendation.left_out.count > 0
