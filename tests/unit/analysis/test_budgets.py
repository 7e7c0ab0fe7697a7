"""What is made of points: verdicts, effects, the guides' tables, doubts gathered."""

from __future__ import annotations

import pytest
from orchestrator.analysis.frame.points import points
from orchestrator.analysis.warnings import gather

from jobs.record import TrialRecord
from orchestrator.analysis.budgets import (
    GIB,
    baseline_choices,
    baseline_training,
    best_in_budgets,
    customary_budgets,
)
from orchestrator.analysis.effects import cumulative, effects
from orchestrator.analysis.hf_guide import PUBLISHED, published
from orchestrator.analysis.pareto import Point
from orchestrator.storage.tables.parquet import axes_of, trials_table
from tests.support.records import COLUMNS, make_grid, make_record


def measured(records: list[TrialRecord]) -> tuple[Point, ...]:
    table = trials_table(records, COLUMNS)
    return points(table.to_pylist(), axes_of(table))


def guide() -> list[TrialRecord]:
    """The guides' rows in small, with invented figures."""
    plain = {"activations": "keep", "precision": "fp32", "optimizer": "adamw_torch"}
    rows = [
        (4, 1, 14000, 9.0, {}),
        (1, 4, 8000, 8.0, {}),
        (1, 4, 6000, 6.0, {"activations": "checkpoint"}),
        (4, 1, 13900, 18.0, {"precision": "fp16"}),
        (1, 4, 7000, 10.0, {"activations": "checkpoint", "precision": "fp16"}),
        (4, 1, 12000, 8.5, {"optimizer": "adafactor"}),
        (
            1,
            4,
            4500,
            9.0,
            {"activations": "checkpoint", "precision": "fp16", "optimizer": "adafactor"},
        ),
        (
            1,
            4,
            5000,
            11.0,
            {"activations": "checkpoint", "precision": "fp16", "optimizer": "adamw_bnb_8bit"},
        ),
    ]
    return [
        make_record(
            micro_batch=m,
            accumulation=a,
            memory_mib=memory,
            speed=speed,
            gpu=False,
            **{**plain, **choices},
        )
        for m, a, memory, speed, choices in rows
    ]


BASELINE = {
    "micro_batch": 4,
    "accumulation": 1,
    "activations": "keep",
    "precision": "fp32",
    "optimizer": "adamw_torch",
}


def test_the_fastest_that_fits_and_nothing_where_nothing_does() -> None:
    own = measured(guide())
    verdicts = best_in_budgets(own, [8 * GIB, 4 * GIB])
    assert [verdict.budget_bytes for verdict in verdicts] == [4 * GIB, 8 * GIB]
    assert verdicts[0].best is None
    assert verdicts[1].best is not None
    assert verdicts[1].best.samples_per_second == 11.0


def test_another_training_is_named_only_where_it_is_faster() -> None:
    sgd = "effective_batch=4 · optimizer=sgd"
    own = measured(
        [
            make_record(micro_batch=1, memory_mib=2000, speed=10, gpu=False),
            make_record(micro_batch=2, memory_mib=6000, speed=30, gpu=False),
            make_record(micro_batch=3, memory_mib=1000, speed=20, gpu=False, equivalence=sgd),
        ]
    )
    verdicts = best_in_budgets(own, [GIB, 4 * GIB, 8 * GIB])
    found = [
        tuple(p and p.samples_per_second for p in (verdict.best, verdict.other))
        for verdict in verdicts
    ]
    assert found == [(None, 20), (10, 20), (30, None)]
    (mixed, *_) = best_in_budgets(own, [8 * GIB], "optimizer=sgd")
    assert [p and p.samples_per_second for p in (mixed.best, mixed.other)] == [20, 30]


def test_the_baselines_training_is_that_of_the_nearest_configuration() -> None:
    kinds = [
        ({"micro_batch": 4, "optimizer": "sgd", "precision": "fp32"}, "optimizer=sgd"),
        ({"micro_batch": 64, "optimizer": "adamw_torch_fused", "precision": "bf16"}, ""),
        ({"micro_batch": 4, "optimizer": "adafactor", "precision": "bf16"}, "optimizer=adafactor"),
    ]
    assert baseline_training(kinds, {"micro_batch": 4, "precision": "bf16"}) == ""
    assert baseline_training(kinds, {"optimizer": "sgd"}) == "optimizer=sgd"
    assert baseline_training(kinds[::2], {"optimizer": "adafactor"}) == "optimizer=adafactor"
    assert baseline_training([], {}) == ""


@pytest.mark.parametrize(
    ("memory", "budgets"),
    [((500, 900), [512, 1024]), ((5000, 30000), [8192, 12288, 16384, 24576, 32768])],
)
def test_budgets_that_nobody_named_tell_the_points_apart(
    memory: tuple[int, int], budgets: list[int]
) -> None:
    own = measured(
        [
            make_record(micro_batch=n + 1, memory_mib=size, gpu=False)
            for n, size in enumerate(memory)
        ]
    )
    assert customary_budgets(own) == [size * 2**20 for size in budgets]
    assert customary_budgets([]) == []


def test_effects_are_medians_over_pairs_that_differ_in_one_axis() -> None:
    found = {(effect.axis, effect.value): effect for effect in effects(measured(guide()), BASELINE)}
    accumulation = found["accumulation", 4]
    assert (accumulation.pairs, accumulation.memory_ratio) == (1, 8000 / 14000)
    assert found["activations", "checkpoint"].speed_ratio == 6 / 8
    fp16 = found["precision", "fp16"]
    assert fp16.pairs == 2
    assert fp16.speed_ratio == pytest.approx((18 / 9 + 10 / 6) / 2)
    assert not any(axis == "micro_batch" for axis, _ in found)


def test_effects_of_a_grid_count_every_pair_and_mark_other_trainings() -> None:
    own = measured(make_grid())
    baseline = baseline_choices(own, {"precision": "fp32", "micro_batch": 4})
    found = {(effect.axis, effect.value): effect for effect in effects(own, baseline)}
    assert baseline["optimizer"] == "adamw_torch_fused"
    assert found["precision", "tf32"].pairs == 68
    assert found["precision", "tf32"].speed_ratio == pytest.approx(3.0)
    assert found["activations", "checkpoint"].same_training
    assert not found["optimizer", "sgd"].same_training


def test_an_effective_batch_in_the_baseline_means_its_accumulation() -> None:
    own = measured(guide())
    assert (
        baseline_choices(own, {**BASELINE, "micro_batch": 1, "effective_batch": 4})["accumulation"]
        == 4
    )
    assert baseline_choices(own, BASELINE) == BASELINE
    assert baseline_choices((), BASELINE) == {}


def test_the_cumulative_path_is_the_guides() -> None:
    stages = cumulative(measured(guide()), BASELINE)
    assert [stage.added for stage in stages] == [
        "baseline",
        "batch 1 × accumulation 4",
        "activations checkpoint",
        "precision fp16",
        "optimizer adafactor",
    ]
    assert stages[-1].memory_ratio == 4500 / 14000


def test_no_path_without_a_measured_baseline() -> None:
    assert cumulative(measured(guide()[1:]), BASELINE) == ()
    assert cumulative(measured(guide()[:1]), BASELINE) == ()


def test_published_figures_need_every_choice_to_be_the_guides() -> None:
    lean = {"micro_batch": 1, "accumulation": 4, "activations": "checkpoint", "precision": "fp16"}
    found = published({**lean, "optimizer": "adafactor"})
    assert found is not None
    assert (found.seconds, found.samples_per_second, found.memory_mb) == (56.54, 9.06, 4847)
    assert published({"micro_batch": 4, "precision": "bf16"}) is None
    assert published({"micro_batch": 4, "attention": "eager"}) is None
    assert published({"micro_batch": 4, "learning_rate": 1e-3}) is None
    assert published({"micro_batch": 4, "optimizer": "adamw_torch"}) == published(
        {"micro_batch": 4}
    )
    assert [entry for entry in PUBLISHED if published(entry.choices) is not entry] == []


def test_warnings_are_gathered_by_kind_and_their_figures_become_a_range() -> None:
    said = [
        "unstable: known to ±3.1% only",
        "host-bound: dry",
        "unstable: known to ±12.0% only",
        "odd",
    ]
    found = gather((text, str(place)) for place, text in enumerate(said))
    assert [(doubt.kind, doubt.text, doubt.labels) for doubt in found] == [
        ("unstable", "known to ±3.1–12.0% only", ("0", "2")),
        ("host-bound", "dry", ("1",)),
        ("odd", "", ("3",)),
    ]
    (unlike,) = gather([("a: one", ""), ("a: two", "")])
    assert unlike.text == "one (and 1 other wording)"
