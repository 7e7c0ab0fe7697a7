"""Budgets on a real GPU: picks fit under caps of the budgets' size, larger configurations fail."""

import json
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import EnvironmentResults, load_dataset
from orchestrator.analysis.follow_up_results import decisive_check
from orchestrator.search.follow_up_plan import under_cap
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import GIB
from tests.gpu.shared import BERT_LARGE, gpu_marks, run_here

CONFIG = {
    "model": BERT_LARGE,
    "data": {"synthetic": {"sequence_length": 512, "samples": 1024}},
    "axes": {"precision": ["bf16"], "micro_batch": [8, *range(12, 56, 4)]},
    "measure": {"warmup_steps": 2, "steps": 4},
    "follow_up": {"tie_break_rounds": 0, "profile": "none"},
    "budgets": [f"{size}GiB" for size in range(12, 32, 2)],
}

pytestmark = gpu_marks(timeout_seconds=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A sweep's folder: micro-batches two GiB apart, and a budget in every gap."""
    made = tmp_path_factory.mktemp("budgets")
    (made / "budgets.yaml").write_text(json.dumps(CONFIG))
    options = (str(made / "budgets.yaml"), "--output", str(made / "run"))
    print(run_here("-m", "orchestrator.sweep", *options))
    return made / "run"


@pytest.fixture(scope="module")
def results(folder) -> EnvironmentResults:
    (environment,) = load_dataset(folder).environments
    return environment


@pytest.fixture(scope="module")
def records(folder) -> dict[str, TrialRecord]:
    return RunFolder(folder).records()


def test_ten_picks_fit_under_caps_of_their_budgets(results, records):
    picks = [(pick, pick.best) for pick in results.budget_picks if pick.best is not None]
    checks = [
        decisive_check(results.cap_checks, best.trial_ids, pick.budget_bytes)
        for pick, best in picks
    ]
    assert len(checks) == 10
    followed = {check.follows_trial for check in checks if check is not None}
    assert len(followed) >= 5, "too few picks differ"
    for check in checks:
        assert check.fits, check
        capped = records[check.trial_id].measurements
        free = records[check.follows_trial].measurements
        libraries = free["device_peak_bytes"] - free["peak_reserved_bytes"]
        limit = check.budget_bytes - max(libraries, capped["gpu_context_bytes"])
        assert capped["peak_reserved_bytes"] <= limit
        assert capped["peak_allocated_bytes"] == free["peak_allocated_bytes"]


def needs_at_least(configuration: Configuration) -> int:
    """Bytes of context, libraries and tensors: what the allocator cannot save by flushing."""
    row = configuration.row
    cached = row["peak_reserved_bytes"] - row["peak_allocated_bytes"]
    return int(configuration.memory_bytes - cached)


def test_ten_configurations_just_above_a_budget_fail_under_its_cap(results, records, slot):
    by_size = sorted(results.configurations, key=needs_at_least)
    failed = []
    for pick in results.budget_picks:
        above = next(own for own in by_size if needs_at_least(own) > pick.budget_bytes)
        spec = under_cap(records[above.trial_ids[0]], pick.budget_bytes)
        record = slot.run(spec, timeout_seconds=120.0)
        budget = f"{pick.budget_bytes / GIB:.4g} GiB"
        print(
            f"{budget}: batch {spec.micro_batch}, {above.memory_bytes / GIB:.2f} GiB without a cap:"
            f" {record.outcome.value} in {record.phase or 'no phase'}; {record.reason[:150]}"
        )
        assert record.outcome is Outcome.OUT_OF_MEMORY, f"{record.reason}\n{record.provenance.log}"
        assert record.reason.startswith(f"under a cap of {budget}")
        failed.append(above)
    assert len(failed) == 10
    after = slot.run(records[failed[-1].trial_ids[0]].spec, timeout_seconds=120.0)
    assert after.outcome is Outcome.OK, "a cap outlived its trial"
