"""The gain over the default configuration: computed, and honest where there is none."""

from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.sections import headline
from orchestrator.units import GIB
from tests.support.records import GPU_BOUND, make_record, write_run


def sentence(folder: Path, records: list[TrialRecord], budgets: list[int]) -> str:
    content = headline.make(load_dataset(write_run(folder, records, budgets=budgets)))
    (text,) = content.text
    return text


def at(precision: str, memory_mib: int, speed: float, micro_batch: int = 4) -> TrialRecord:
    return make_record(
        precision=precision, memory_mib=memory_mib, speed=speed, micro_batch=micro_batch
    )


@pytest.mark.parametrize(
    ("memory_mib", "speed", "expected"),
    [
        (4000, 500.0, "5.0 × the default's throughput at half its memory, by the fastest in"),
        (8000, 1234.0, "12 × the default's throughput in the same memory, by"),
        (2000, 120.0, "1.2 × the default's throughput at 30 % of its memory, by"),
        (16000, 200.0, "2.0 × the default's throughput at 1.9 × its memory, by"),
        (2000, 102.0, "The default's throughput at 30 % of its memory, by"),
    ],
)
def test_headline_compares_with_the_default_at_the_same_batch(
    tmp_path, memory_mib, speed, expected
):
    records = [at("fp32", 8000, 100.0), at("bf16", memory_mib, speed), at("fp32", 900, 9.0, 1)]
    text = sentence(tmp_path, records, [20 * GIB])
    assert text.startswith(expected)
    assert "batch 4×1 · bf16" in text
    assert "Default: batch 4×1 · fp32, 100 samples/s in 8.40 GiB" in text


@pytest.mark.parametrize(("half_width", "chance"), [(0.5, True), (0.001, False), (None, False)])
def test_headline_says_if_the_gain_is_no_more_than_chance(tmp_path, half_width, chance):
    own = {**GPU_BOUND, "samples_per_second_ci95": half_width}
    records = [
        make_record(precision="fp32", speed=1.0, measurements=own),
        make_record(precision="bf16", speed=1.3, measurements=own),
    ]
    text = sentence(tmp_path, records, [])
    beginning = "1.3 × the default's throughput in the same memory"
    if chance:
        beginning = "The default's throughput, within chance (1.3 ×), in the same memory"
    assert text.startswith(beginning)


@pytest.mark.parametrize(
    ("budgets_gib", "words"),
    [
        # The default takes 8.4 GiB.
        ([3, 9, 40], "No gain over the default techniques, which are the fastest in 9 GiB"),
        ([3, 40], "9.0 × the default's throughput at 1.1 × its memory, by the fastest in 40 GiB"),
        # Budgets that nothing fits are passed over.
        ([1, 3], "50.0 samples/s in 2.54 GiB, by the fastest in 3 GiB: batch 4×1 · bf16. The d"),
        ([], "9.0 × the default's throughput at 1.1 × its memory, by the fastest of all: batch 8"),
    ],
)
def test_headline_is_about_the_smallest_budget_that_the_default_fits(tmp_path, budgets_gib, words):
    records = [at("fp32", 8000, 100.0), at("bf16", 2000, 50.0), at("bf16", 9000, 900.0, 8)]
    assert sentence(tmp_path, records, [size * GIB for size in budgets_gib]).startswith(words)


def test_headline_says_where_the_default_was_measured_at_another_batch(tmp_path):
    records = [at("fp32", 8000, 100.0, 1), at("bf16", 8000, 500.0, 6)]
    records += [at("bf16", 7000, 100.0, 1)]
    text = sentence(tmp_path, records, [])
    assert text.startswith("5.0 × the default's throughput")
    assert "not measured at this effective batch" in text or "inferred" in text


@pytest.mark.parametrize(
    ("other", "which"),
    [
        (at("bf16", 9000, 50.0), "of all"),
        (
            make_record(precision="fp32", speed=300.0, recipe={"optimizer": "sgd"}),
            "with the same training recipe",
        ),
    ],
)
def test_headline_of_the_default_itself_claims_no_gain(tmp_path, other, which):
    text = sentence(tmp_path, [at("fp32", 8000, 100.0), other], [])
    assert text.startswith(f"No gain over the default techniques, which are the fastest {which}: ")


def test_headline_is_absent_without_results(tmp_path):
    failed = make_record(outcome=Outcome.FAILED, reason="no")
    assert headline.make(load_dataset(write_run(tmp_path, [failed]))) is None
