"""Why two trials differ: parts add up, and what cannot be explained raises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.record import TrialRecord
from jobs.spec import FollowUp, Purpose
from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.analysis.explanation import explain
from orchestrator.analysis.loss_parity.windows import CheckState
from tests.support.records import make_anatomy, make_record, write_run

SLOW = make_record(
    speed=100,
    precision="fp32",
    anatomy=make_anatomy(),
    measurements={"matmul_dtype": "float32", "first_step_seconds": 0.8},
)
FAST = make_record(
    memory_mib=640,
    speed=150,
    precision="bf16",
    measurements={"matmul_dtype": "bfloat16", "first_step_seconds": 60.8},
)


def profile_of(record: TrialRecord, scale: float) -> TrialRecord:
    """The follow-up that profiles a record's trial."""
    follow_up = FollowUp(follows_trial=record.trial_id, purpose=Purpose.PROFILE)
    measure = replace(record.spec.measure, profile=True)
    spec = replace(record.spec, measure=measure, follow_up=follow_up)
    return replace(record, spec=spec, anatomy=make_anatomy(scale))


def written(folder: Path, *records: TrialRecord) -> Dataset:
    return load_dataset(write_run(folder, list(records)))


@pytest.mark.parametrize(
    ("records", "source"),
    [([SLOW, FAST], "columns"), ([SLOW, FAST, profile_of(FAST, 0.4)], "anatomy")],
)
def test_explain_terms_add_up_to_the_figures(
    records: list[TrialRecord], source: str, tmp_path: Path
) -> None:
    explanation = explain(written(tmp_path, *records), SLOW.trial_id, FAST.trial_id)
    for breakdown in (explanation.seconds_per_sample, explanation.memory_bytes):
        assert breakdown.source == source
        assert sum(term.before for term in breakdown.terms) == pytest.approx(breakdown.before)
        assert sum(term.after for term in breakdown.terms) == pytest.approx(breakdown.after)
    assert explanation.seconds_per_sample.after == pytest.approx(1 / 150)


def test_explain_names_choices_and_runtime_that_differ(tmp_path: Path) -> None:
    explanation = explain(written(tmp_path, SLOW, FAST), SLOW.trial_id, FAST.trial_id[:7])
    assert [(c.name, c.before, c.after) for c in explanation.choices] == [
        ("precision", "fp32", "bf16")
    ]
    runtime = {difference.name: difference.after for difference in explanation.runtime}
    assert runtime == {"matmul_dtype": "bfloat16", "first_step_seconds": 60.8}


def test_explain_scales_a_profiled_step_that_was_slower(tmp_path: Path) -> None:
    slow = replace(SLOW, anatomy=make_anatomy(10))
    dataset = written(tmp_path, slow, FAST, profile_of(FAST, 1))
    explanation = explain(dataset, SLOW.trial_id, FAST.trial_id)
    terms = {term.name: term for term in explanation.seconds_per_sample.terms}
    assert terms["tensor contractions"].before == pytest.approx(0.01 * 240 / 256)
    assert terms["idle"].before == pytest.approx(0)
    assert explanation.slower_profiles[0] == pytest.approx(6.4)


def test_explain_compares_losses_up_to_the_first_that_is_not_finite(tmp_path: Path) -> None:
    curves = {
        "steady": [1.0] * 8,
        "doubled": [1.0] * 4 + [2.0] * 4,
        "broken": [1.0, float("nan")] + [1.0] * 6,
    }
    records = {}
    for size, (name, losses) in enumerate(curves.items(), 1):
        steps = {"loss": losses, "step_seconds": [0.1] * 8}
        records[name] = replace(make_record(micro_batch=size), steps=steps)
    dataset = written(tmp_path, *records.values())
    first = records["steady"].trial_id
    results = {name: explain(dataset, first, r.trial_id).losses for name, r in records.items()}
    steady, doubled, broken = (results[name] for name in curves)
    assert steady.state is CheckState.MATCHES
    assert doubled.state is CheckState.MISMATCH
    assert broken.state is CheckState.MATCHES
    assert doubled.furthest_step == 4
    assert len(broken.after) == 1
