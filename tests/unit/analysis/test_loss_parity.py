"""The numerical guard: planted divergences are found, recorded runs raise no false alarm, upstream's bug is named."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from orchestrator.analysis.loss_parity import Finding, findings
from orchestrator.api import load
from orchestrator.storage.tables.parquet import axes_of, guarded, trials_table
from tests.support.records import COLUMNS, make_record

RECORDED = Path(__file__).parents[3] / "docs" / "results"
PLAIN = {"activations": "keep", "precision": "fp32", "loop": "trainer"}


def judged(*rows: tuple[dict[str, object], list[float]]) -> dict[int, Finding]:
    """Findings by the place of their row; each is (choices, losses)."""
    records = []
    for choices, _ in rows:
        micro, accumulation = choices.get("micro_batch", 4), choices.get("accumulation", 1)
        kind = f"effective_batch={micro * accumulation}"  # type: ignore[operator]
        records.append(
            make_record(equivalence=str(choices.pop("kind", kind)), **{**PLAIN, **choices})
        )  # type: ignore
    table = trials_table(records, COLUMNS)
    losses = {record.trial_id: own for record, (_, own) in zip(records, rows, strict=True)}
    places = {record.trial_id: place for place, record in enumerate(records)}
    return {places[f.trial_id]: f for f in findings(table.to_pylist(), losses, axes_of(table))}


def noisy(steps: int = 12, seed: int = 0, level: float = 0.7) -> list[float]:
    rng = random.Random(seed)
    return [level * (1 + 0.15 * rng.gauss(0, 1)) for _ in range(steps)]


def test_rows_with_the_same_draws_must_agree_to_their_precision() -> None:
    losses, checkpointed = noisy(), {"activations": "checkpoint"}
    apart = [loss * 1.01 for loss in losses]
    assert not judged(({}, losses), (checkpointed, losses))
    assert judged(({}, losses), (checkpointed, apart))[1].text == "loss 1.01 times its reference's"
    assert not judged(
        ({"precision": "bf16"}, losses), ({"precision": "bf16", **checkpointed}, apart)
    )


def test_a_late_divergence_is_found_and_so_is_a_loss_that_is_no_number() -> None:
    late = [*noisy()[:8], 1.5, 2.0, 3.0, 4.0]
    found = judged(
        ({}, noisy()),
        ({"precision": "bf16"}, late),
        ({"precision": "fp16"}, [0.7, math.nan, math.nan]),
    )
    assert set(found) == {1, 2}
    assert found[1].factor > 2
    assert found[2].text == "loss is nan from step 2 on"


def test_other_draws_may_differ_as_much_as_steps_scatter() -> None:
    assert not judged(
        ({}, noisy()),
        ({"precision": "bf16"}, noisy(seed=1)),
        ({"loop": "accelerate"}, noisy(seed=2)),
    )
    assert set(judged(({}, noisy(seed=3)), ({"loop": "accelerate"}, noisy(seed=4, level=1.4)))) == {
        1
    }


@pytest.mark.parametrize("accumulation", [2, 4, 8])
def test_a_loss_that_is_not_divided_is_found_with_its_factor(accumulation: int) -> None:
    split = {"micro_batch": 8 // accumulation, "accumulation": accumulation}
    times = [accumulation * loss for loss in noisy(seed=5)]
    ((_, finding),) = judged(({"micro_batch": 8}, noisy()), (split, times)).items()
    assert finding.factor == pytest.approx(accumulation, rel=0.15)
    assert "times its reference's, as is its accumulation" in finding.text
    assert not judged(({"micro_batch": 8}, noisy()), (split, noisy(seed=5)))


def test_what_was_only_ever_accumulated_is_compared_with_the_nearest_group() -> None:
    split = {"micro_batch": 4, "accumulation": 4}
    undivided = [4 * loss for loss in noisy(seed=6)]
    assert set(judged(({}, noisy()), (split, undivided))) == {
        1
    }  # another effective batch of the same training
    other = {**split, "kind": "effective_batch=16 · optimizer=sgd"}
    assert set(judged(({"micro_batch": 16}, noisy()), (other, undivided))) == {
        1
    }  # another training, the same batch
    assert not judged((split, undivided))  # alone: nothing is known


@pytest.mark.parametrize(
    ("run", "accumulated"),
    [
        ("2026-11-21-docs_table-h200", 6),
        ("2026-11-21-all_techniques-2xh200", 2),
        ("2026-11-20-bert_large-7xh200-part", 0),
    ],
)
def test_recorded_runs_show_upstreams_accumulation_and_nothing_else(
    run: str, accumulated: int
) -> None:
    doubted = [
        row
        for row in load(RECORDED / run).rows
        if any("trains diff" in w for w in row["warnings"] or ())
    ]
    assert len(doubted) == accumulated
    for row in doubted:
        assert (row["accumulation"], row["loop"]) == (4, "trainer")
        (warning,) = [w for w in row["warnings"] if w.startswith("trains differently:")]
        assert warning.startswith(("trains differently: loss 4.", "trains differently: loss 3.9"))


def test_the_tables_warnings_are_set_once_and_taken_back() -> None:
    records = [make_record(**PLAIN), make_record(**{**PLAIN, "activations": "checkpoint"})]
    losses = {records[0].trial_id: noisy(), records[1].trial_id: [2 * loss for loss in noisy()]}
    table = guarded(trials_table(records, COLUMNS), losses)
    assert table["warnings"].to_pylist() == [
        [],
        ["trains differently: loss 2.0 times its reference's"],
    ]
    assert guarded(table, losses) == table
    assert guarded(table, dict.fromkeys(losses, noisy()))["warnings"].to_pylist() == [[], []]
