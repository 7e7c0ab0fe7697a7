"""Why a sweep has failed: no trial ended ok, and the commonest reason."""

from __future__ import annotations

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.running.sweep_run import why_none_ok
from tests.support.records import make_record


def failed(outcome: Outcome, reason: str, number: int = 1) -> list[TrialRecord]:
    """Trials that ended alike."""
    is_started = outcome not in (Outcome.UNSUPPORTED, Outcome.SKIPPED)
    started_at = 1_700_000_000.0 if is_started else 0.0
    return [
        make_record(micro_batch=size, outcome=outcome, reason=reason, started_at=started_at)
        for size in range(1, number + 1)
    ]


def test_sweep_with_an_ok_trial_has_not_failed() -> None:
    assert why_none_ok([make_record(), *failed(Outcome.FAILED, "no")]) == ""


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([], "no trial ended ok: nothing is planned"),
        (
            [
                *failed(Outcome.FAILED, "ValueError: no", 2),
                *failed(Outcome.FAILED, "KeyError: other"),
                *failed(Outcome.CRASHED, "killed"),
            ],
            "no trial ended ok: 3 of 4 trials ended with failed, most often: ValueError: no",
        ),
        (
            [
                *failed(Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
                *failed(Outcome.SKIPPED, "needs more", 8),
                *failed(Outcome.UNSUPPORTED, "a rule", 3),
            ],
            "no trial ended ok: 1 of 12 trials ended with out_of_memory, most often: CUDA out of"
            " memory",
        ),
        (
            [*failed(Outcome.SKIPPED, "time budget", 3), *failed(Outcome.UNSUPPORTED, "a rule")],
            "no trial ended ok: 1 of 4 trials ended with unsupported, most often: a rule",
        ),
    ],
    ids=["nothing planned", "commonest outcome", "started trials first", "not skipped first"],
)
def test_failure_names_the_commonest_reason(records: list[TrialRecord], sentence: str) -> None:
    assert why_none_ok(records) == sentence
