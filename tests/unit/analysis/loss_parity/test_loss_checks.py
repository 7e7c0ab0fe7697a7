"""Loss parity: planted mismatches are found, recorded runs raise no false alarm."""

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobs import rank_records
from jobs.flags import LOSS, Flag, FlagKind, flags_of, has_any
from jobs.record import Column
from orchestrator.analysis.dataset import build_dataset, dataset_of_records, load_dataset
from orchestrator.analysis.loss_parity.loss_checks import LossCheck, loss_checks
from orchestrator.analysis.loss_parity.windows import CheckState, LossWindow, state_of
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.trial_table import table_of_records
from tests.support.recorded_runs import RECORDED
from tests.support.records import COLUMNS, make_record

PLAIN = {"activations": "keep", "precision": "fp32", "loop": "trainer"}
CHECKPOINT = {"activations": "checkpoint"}


def checked(*rows: tuple[Mapping[str, Any], list[float]]) -> list[LossCheck]:
    """The check of each row; each row is (choices, losses)."""
    records = [make_record(**{**PLAIN, **choices}) for choices, _ in rows]
    table = table_of_records(records, declared=COLUMNS)
    losses = {}
    for record, (_, own) in zip(records, rows, strict=True):
        losses[record.trial_id] = own
    checks = loss_checks(table.rows, losses, table.axes)
    return [checks[record.trial_id] for record in records]


def judge(*rows: tuple[Mapping[str, Any], list[float]]) -> dict[int, Flag]:
    """Flags by the index of their row."""
    return {index: own.flag for index, own in enumerate(checked(*rows)) if own.flag is not None}


def states(*rows: tuple[Mapping[str, Any], list[float]]) -> list[CheckState]:
    return [check.state for check in checked(*rows)]


def noisy(steps: int = 12, seed: int = 0, level: float = 0.7) -> list[float]:
    """Losses that scatter by 15 %."""
    rng = random.Random(seed)
    return [level * (1 + 0.15 * rng.gauss(0, 1)) for _ in range(steps)]


def test_several_gpus_are_compared_with_one_that_accumulates_to_their_batch():
    losses = noisy()

    def check(shared: list[float], ratio: float = 1.0) -> LossCheck:
        one = make_record(
            accumulation=2, sharding="none", measurements={"accumulation_loss_ratio": ratio}
        )
        two = []
        for sharding in ("ddp", "zero2"):
            own = make_record(sharding=sharding, measurements={"world_size": 2})
            two.append(replace(own, spec=replace(own.spec, world_size=2)))
        by_trial = dict(
            zip([own.trial_id for own in (one, *two)], (losses, shared, shared), strict=True)
        )
        columns = (
            *COLUMNS,
            *rank_records.COLUMNS,
            Column.number("accumulation_loss_ratio", "Ratio"),
        )
        table = table_of_records([one, *two], declared=columns)
        return loss_checks(table.rows, by_trial, table.axes)[two[1].trial_id]

    # The other row of two GPUs has the same losses in all cases.
    assert check(losses).state is CheckState.MATCHES
    wrong = check([2 * loss for loss in losses])
    assert (wrong.state, wrong.flag and wrong.flag.value) == (CheckState.MISMATCH, 2.0)
    # A loss that one GPU summed instead of averaging says nothing of several.
    assert check([loss / 2 for loss in losses], ratio=2.0).state is CheckState.MATCHES


def test_loss_flags_same_draws_must_agree_to_rounding():
    losses = noisy()
    apart = [loss * 1.01 for loss in losses]
    assert judge(({}, losses), (CHECKPOINT, losses)) == {}
    flag = judge(({}, losses), (CHECKPOINT, apart))[1]
    assert flag.kind is FlagKind.LOSS_MISMATCH
    assert flag.value == pytest.approx(1.01)
    bf16 = {"precision": "bf16"}
    assert judge((bf16, losses), ({**bf16, **CHECKPOINT}, apart)) == {}


def test_loss_flags_find_a_late_divergence_and_a_loss_not_finite():
    late = [*noisy()[:8], 1.5, 2.0, 3.0, 4.0]
    flags = judge(
        ({}, noisy()),
        ({"precision": "bf16"}, late),
        ({"precision": "fp16"}, [0.7, math.nan, math.nan]),
    )
    assert set(flags) == {1, 2}
    assert flags[1].value > 2
    assert flags[2] == Flag(FlagKind.LOSS_NOT_FINITE, 2)


def test_loss_flags_other_draws_may_differ_as_much_as_steps_scatter():
    accelerate = {"loop": "accelerate"}
    assert not judge(
        ({}, noisy()), ({"precision": "bf16"}, noisy(seed=1)), (accelerate, noisy(seed=2))
    )
    assert set(judge(({}, noisy(seed=3)), (accelerate, noisy(seed=4, level=1.4)))) == {1}


@pytest.mark.parametrize("accumulation", [2, 4, 8])
def test_loss_flags_name_a_loss_not_divided_by_the_accumulation(accumulation):
    split = {"micro_batch": 8 // accumulation, "accumulation": accumulation}
    undivided = [accumulation * loss for loss in noisy(seed=5)]
    flag = judge(({"micro_batch": 8}, noisy()), (split, undivided))[1]
    assert flag.kind is FlagKind.LOSS_TIMES_ACCUMULATION
    assert flag.value == pytest.approx(accumulation, rel=0.15)
    assert judge(({"micro_batch": 8}, noisy()), (split, noisy(seed=5))) == {}


def test_loss_flags_compare_a_row_only_accumulated_with_a_neighbour():
    split = {"micro_batch": 4, "accumulation": 4}
    undivided = [4 * loss for loss in noisy(seed=6)]
    assert set(judge(({}, noisy()), (split, undivided))) == {1}  # same recipe, other batch
    sgd = {**split, "recipe": {"optimizer": "sgd"}}
    assert set(judge(({"micro_batch": 16}, noisy()), (sgd, undivided))) == {1}  # other recipe
    assert judge((split, undivided)) == {}  # nothing to compare with


@pytest.mark.parametrize(
    ("run", "accumulated"),
    [
        ("2026-11-21-docs_table-h200", 6),
        ("2026-11-21-all_techniques-2xh200", 2),
        ("2026-11-20-bert_large-7xh200-part", 0),
    ],
)
def test_recorded_runs_show_upstreams_accumulation_and_nothing_else(run, accumulated):
    rows = load_dataset(RECORDED / run).rows
    flagged = [row for row in rows if has_any(flags_of(row), LOSS)]
    assert len(flagged) == accumulated
    for row in flagged:
        (flag,) = [flag for flag in flags_of(row) if flag.kind in LOSS]
        assert (row["accumulation"], row["loop"]) == (4, "trainer")
        assert flag.kind is FlagKind.LOSS_TIMES_ACCUMULATION
        assert flag.value == pytest.approx(4, rel=0.1)


def test_build_dataset_sets_loss_flags_and_takes_them_back():
    records = [make_record(**PLAIN), make_record(**{**PLAIN, **CHECKPOINT})]
    first, second = (record.trial_id for record in records)
    table = table_of_records(records, declared=COLUMNS)
    doubled = {first: noisy(), second: [2 * loss for loss in noisy()]}
    dataset = build_dataset(table, doubled)
    assert [row["flags"] for row in dataset.rows] == [[], ["loss_mismatch"]]
    dataset = build_dataset(table, dict.fromkeys(doubled, noisy()))
    assert [row["flags"] for row in dataset.rows] == [[], []]


def window(own: float, allowed: float) -> LossWindow:
    return LossWindow(begin=0, end=3, own=own, reference=1.0, scale=1.0, allowed=allowed)


@pytest.mark.parametrize(
    ("own", "allowed", "state"),
    [
        (1.05, 0.1, CheckState.MATCHES),
        (1.4, 0.3, CheckState.MISMATCH),
        # A difference of more than 10 % would pass.
        (1.0, 0.101, CheckState.NOT_CHECKED),
        # What is beyond even that bound is certain.
        (8.0, 5.01, CheckState.MISMATCH),
    ],
)
def test_state_of_a_check_without_power_is_not_checked(own, allowed, state):
    assert state_of([window(own, allowed)]) is state
    assert state_of([window(1.0, 0.1), window(own, allowed)]) is state
    assert state_of([]) is CheckState.NOT_CHECKED


def test_loss_checks_without_power_raise_no_flag_and_say_so():
    wild = [0.1, 4.0, 0.2, 3.0]
    rows = (({}, wild), ({"precision": "bf16"}, [2.0 * loss for loss in wild]))
    assert judge(*rows) == {}
    assert states(*rows) == [CheckState.REFERENCE, CheckState.NOT_CHECKED]
    rows = (({}, noisy()), ({"precision": "bf16"}, noisy(seed=1)), (CHECKPOINT, noisy()))
    assert states(*rows) == [CheckState.REFERENCE, CheckState.NOT_CHECKED, CheckState.MATCHES]
    assert states(({}, noisy()), (CHECKPOINT, [])) == [CheckState.REFERENCE, CheckState.NOT_CHECKED]


@pytest.mark.parametrize(
    ("ratio", "kind"),
    [(1.01, None), (4.0, FlagKind.LOSS_TIMES_ACCUMULATION), (0.5, FlagKind.LOSS_MISMATCH)],
)
def test_loss_checks_take_what_the_trial_itself_found(ratio, kind):
    record = make_record(accumulation=4, measurements={"accumulation_loss_ratio": ratio})
    dataset = dataset_of_records([record], RunMetadata())
    (configuration,) = dataset.main.configurations
    assert configuration.trains_wrongly is (kind is not None)
    assert [flag.kind for flag in configuration.loss_flags] == ([] if kind is None else [kind])


def test_loss_checks_know_losses_that_rise_and_fall_together():
    """Few steps that scatter by more than their mean, but equally in both trials."""
    wild = [0.7, 2.6, 1.3, 0.6, 1.5]
    close = [loss * (1.02 if step % 2 else 0.98) for step, loss in enumerate(wild)]
    bf16 = {"precision": "bf16"}
    assert states(({}, wild), (bf16, close)) == [CheckState.REFERENCE, CheckState.MATCHES]
    assert states(({}, wild), (bf16, wild[::-1]))[1] is CheckState.NOT_CHECKED
    # A doubled loss rises and falls with the reference, too, and is no match.
    doubled = [2 * loss for loss in wild]
    assert states(({}, wild), (bf16, doubled))[1] is not CheckState.MATCHES
