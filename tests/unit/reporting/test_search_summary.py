"""A search's account of itself: from the search to run.json to the pages."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from orchestrator.reporting import markdown
from orchestrator.reporting.publish import summarize_folder
from orchestrator.reporting.search_summary import account
from orchestrator.reporting.terminal import print_summary
from orchestrator.search.base import Search
from orchestrator.search.frontier.search import Frontier
from orchestrator.search.grid import Grid
from orchestrator.search.optuna import Optuna
from tests.benchmarks.grids import recorded, simulated
from tests.support.records import make_grid, write_run


def finished(search: Search) -> Search:
    """The search at its end on the simulated grid."""
    table = simulated()
    while (spec := search.ask()) is not None:
        search.tell(table[spec.trial_id])
    return search


def test_an_account_adds_up() -> None:
    search = finished(Frontier(record.spec for record in simulated().values()))
    said = json.loads(json.dumps(search.account))
    assert said["planned"] == 288
    assert said["measured"] + sum(said["skipped"].values()) == said["planned"]
    assert said["audit"]["audited"] == len(search.audit) >= 2  # type: ignore[attr-defined]
    assert said["audit"]["contradicted"] == 0
    assert (
        0
        <= said["audit"]["memory_error"]["median"]
        <= said["audit"]["memory_error"]["largest"]
        < 0.5
    )
    assert Grid([]).account == {}


def test_cut_short_it_accounts_for_what_was_done() -> None:
    specs = [record.spec for record in recorded().values()]
    search = Optuna(specs, share=0.5)
    for _ in range(3):
        spec = search.ask()
        assert spec is not None
        search.tell(recorded()[spec.trial_id])
    assert search.account == {"kind": "optuna", "planned": 144, "measured": 3, "skipped": {}}


ACCOUNT = {
    "kind": "frontier",
    "planned": 288,
    "measured": 105,
    "skipped": {"dominated": 140, "out_of_memory_below": 43},
    "audit": {
        "audited": 12,
        "contradicted": 1,
        "tolerance": 0.02,
        "memory_error": {"median": 0.001, "largest": 0.004},
        "speed_error": None,
    },
}


def test_an_account_is_told_in_sentences() -> None:
    assert account(ACCOUNT) == [
        "search: frontier measured 105 of 288 trials and left out 183 (140 dominated, 43 out_of_memory_below).",
        "12 configurations that it would have left out, drawn by its seed, were measured all the same: "
        "1 belonged on the frontier beyond 2 %; memory was off its likeliest value by 0.1% (median), at most 0.4%.",
    ]
    (_, unaudited) = account({**ACCOUNT, "audit": {"audited": 0}})
    assert unaudited.startswith("None of what it left out was measured")
    assert account({"kind": "optuna", "planned": 8, "measured": 2, "skipped": {}}) == [
        "search: optuna measured 2 of 8 trials and left out 0."
    ]
    assert account({}) == []


def test_the_pages_say_it(tmp_path: Path) -> None:
    summary = summarize_folder(write_run(tmp_path, make_grid()[:4], search=ACCOUNT))
    output = io.StringIO()
    print_summary(summary, Console(file=output))
    for page in (markdown.render(summary), output.getvalue()):
        assert "frontier measured 105 of 288 trials" in " ".join(page.split())
