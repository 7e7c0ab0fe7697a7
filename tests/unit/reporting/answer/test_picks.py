"""What `tune` prints: the pick of each budget, or what is known where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import TrialRecord
from orchestrator.analysis.dataset import dataset_of_records
from orchestrator.reporting.answer.picks import describe, tune_answers
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.units import GIB
from tests.support.records import make_record

EVIDENCE: dict[str, Any] = {
    "budget_bytes": 24 * GIB,
    "recipe": "",
    "pick": {"trial_id": "a", "samples_per_second": 1.0, "memory_bytes": 1.0},
    "considered": 900,
    "ruled_out": 300,
    "measured": 2,
    "expected_gain": 0.01,
    "gain_at_most": 0.03,
    "confidence": 0.95,
    "is_settled": False,
}


def printed(*records: TrialRecord, **evidence: Any) -> str:
    """What is printed for a run of one question; without evidence, its search left none."""
    search: dict[str, Any] = {}
    if evidence:
        counts = {"planned": 9, "measured": 2, "skipped": {}}
        search = {"kind": "best", **counts, "results": [{**EVIDENCE, **evidence}]}
    run = RunMetadata(name="own", budgets=(24 * GIB,), baseline={"micro_batch": 4}, search=search)
    dataset = dataset_of_records(records, run)
    return describe(dataset, tune_answers(dataset), {})


def test_tune_answer_within_a_budget_below_everything_names_the_least_memory() -> None:
    text = printed(
        make_record(micro_batch=4, memory_mib=30_000),
        make_record(micro_batch=8, memory_mib=50_000, speed=200.0),
        pick=None,
        gain_at_most=None,
    )
    assert "no measured configuration fits\n" in text
    assert "least memory measured: batch 4" in text
    assert "whether anything does is not known" in text
    assert "samples/s, trial" not in text


def test_tune_answer_that_was_cut_short_says_how_to_continue() -> None:
    cut = printed(make_record(), is_settled=False)
    assert "at most +3.0 % in speed, with 95 % probability" in cut
    assert "--resume with more --gpu-minutes continues it" in cut
    assert "--resume" not in printed(make_record(), is_settled=True)


def test_tune_answer_of_a_killed_run_names_its_fastest_without_evidence() -> None:
    text = printed(make_record(micro_batch=4), make_record(micro_batch=8, speed=200.0))
    assert "batch 8" in text
    assert "considered" not in text


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (Flag(FlagKind.HOST_BOUND, 0.97), "host-bound"),
        (Flag(FlagKind.SHARED_PROCESSES, 1), "shared"),
    ],
)
def test_tune_answer_with_a_doubtful_speed_says_why(flag: Flag, words: str) -> None:
    text = printed(make_record(flags=[flag]), is_settled=True)
    assert words in text


def test_tune_answer_without_a_pick_says_that_the_least_memory_was_measured_beside_others() -> None:
    listed = [Flag(FlagKind.SHARED_PROCESSES, 1), Flag(FlagKind.HOST_BOUND, 0.97)]
    text = printed(make_record(memory_mib=30_000, flags=listed), pick=None, gain_at_most=None)
    assert "least memory measured: batch 4" in text
    assert "other processes on the GPU: 1" in text
    assert "host-bound" not in text


def test_tune_answer_of_nothing_measured_says_so() -> None:
    assert "nothing was measured" in printed()
