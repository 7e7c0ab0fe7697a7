"""The printed end of a run reads well in a plain log, and texts are cut between words."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.report import Report
from orchestrator.reporting.terminal.safe_text import shortened
from orchestrator.reporting.terminal.summary import print_summary
from tests.support.records import make_grid, make_record, write_run


def printed(folder: Path, width: int | None = None) -> str:
    output = io.StringIO()
    print_summary(Report(dataset=load_dataset(folder)), Console(file=output, width=width))
    return output.getvalue()


def test_print_summary_is_narrow_and_without_colours(tmp_path):
    text = printed(write_run(tmp_path, make_grid(), budgets=[2**33]))
    assert max(map(len, text.splitlines())) < 100
    assert "\x1b" not in text
    for words in (
        "288 trials: 280 ok, 8 out_of_memory",
        "Pareto front on NVIDIA H200",
        "Fastest in each memory budget",
        "Failed and skipped",
        "CUDA out of memory",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("budgets", "option"),
    [([], ""), ([2**33, 2**34], "--memory 8GiB "), ([72 * 2**20], "--memory 72MiB ")],
)
def test_print_summary_ends_with_the_command_to_go_on_with(budgets, option, tmp_path, capsys):
    records = [make_record(memory_mib=50)]
    dataset = load_dataset(write_run(tmp_path, records, budgets=budgets))
    print_summary(Report(dataset=dataset, files=(tmp_path / "a run" / "report.html",)))
    last = capsys.readouterr().out.splitlines()[-1]
    command = f"python -m orchestrator.recommend '{tmp_path}/a run' {option}--export my-training"
    assert last == f"next: {command}"


def test_print_summary_to_a_pipe_wraps_sentences_but_no_cell(tmp_path, capsys):
    choices = {f"axis_{number}": "a_long_value" for number in range(6)}
    records = [make_record(micro_batch=size, **choices) for size in (1, 2)]
    others = [make_record(micro_batch=4, **{**choices, name: "x"}) for name in choices]
    print_summary(Report(dataset=load_dataset(write_run(tmp_path, [*records, *others]))))
    lines = capsys.readouterr().out.splitlines()
    whole = " · ".join(f"{axis}={value}" for axis, value in choices.items())
    assert any(whole in line for line in lines)
    assert not any(line.rstrip().endswith("…") for line in lines)
    sentences = [line for line in lines if "  " not in line.strip() and "─" not in line]
    assert max(map(len, sentences)) < 100
    assert lines == list(map(str.rstrip, lines))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("two  lines\nof words", "two lines of words"),
        ("one two three four", "one two three …"),
        ("/a/path/longer/than/the/limit.txt was missing", "/a/path/longer/than/the/limit.txt …"),
        ("incomprehensibilities", "incomprehensibilities"),
        ("", ""),
    ],
)
def test_shortened_ends_between_words(text, expected):
    limit = 18 if "lines" in text else 16
    assert shortened(text, limit) == expected
