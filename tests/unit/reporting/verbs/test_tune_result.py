"""The result of `tune`: computed once, stored with the run, and the same for every reader."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.dataset import dataset_of_records, load_dataset
from orchestrator.api import load
from orchestrator.reporting.publish import publish
from orchestrator.reporting.sections.search_outcome import certainty, counts, results
from orchestrator.reporting.verbs.tune_result import candidate_of, computed, read, to_json
from orchestrator.reporting.verbs.tune_text import describe, failures
from orchestrator.storage.layout import RESULT
from orchestrator.storage.run_metadata import RunMetadata, UnreadableRunError
from orchestrator.storage.search_summary import BudgetResult, MeasuredPick, SearchSummary
from orchestrator.units import GIB
from tests.support.golden import assert_golden, without_ids
from tests.support.recorded_runs import RECORDED
from tests.support.records import GPU_BOUND, make_record, write_run

FOUND = BudgetResult(
    budget_bytes=24 * GIB,
    recipe="",
    pick=MeasuredPick(trial_id="a", samples_per_second=1.0, memory_bytes=1.0),
    considered=12_345,
    ruled_out=6_000,
    measured=20,
    expected_gain=0.01,
    gain_at_most=0.012,
    confidence=0.95,
    is_settled=False,
)


def search_of(*found: BudgetResult) -> dict[str, Any]:
    counted = {"kind": "best", "planned": 12_345, "measured": 20, "skipped": {}}
    return {**counted, "results": [own.to_json() for own in found]}


def printed(*records: TrialRecord, budgets: tuple[int, ...] = (24,), **changes: Any) -> str:
    """What is printed for a run with budgets in GiB; without changes, its search left no
    summary."""
    nbytes = tuple(own * GIB for own in budgets)
    found = [replace(FOUND, budget_bytes=budget, **changes) for budget in nbytes]
    search = search_of(*found) if changes else {}
    run = RunMetadata(name="own", budgets=nbytes, baseline={"micro_batch": 4}, search=search)
    return describe(computed(dataset_of_records(records, run)), {})


def plain_json(values: dict[str, Any]) -> Any:
    return json.loads(json.dumps(values))


def test_own_arguments_that_did_not_end_ok_are_no_others_that_did():
    # No row has micro-batch 4, so the baseline that techniques are compared with is another.
    ended = {"outcome": Outcome.SKIPPED, "reason": "too late (3 steps done)", "started_at": 1.0}
    text = printed(make_record(micro_batch=8), make_record(micro_batch=4, **ended))
    assert "did not end ok, so gains are unknown (too late (3 steps done))" in text
    assert "your own arguments: " not in text
    assert "these are your own arguments" not in text


def test_results_are_the_recorded_text():
    host_bound, shared = Flag(FlagKind.HOST_BOUND, 0.97), Flag(FlagKind.SHARED_PROCESSES, 1)
    doubtful = make_record(flags=[host_bound])
    # Another process may have had a part of this memory; the speed is of no interest.
    large = make_record(memory_mib=30_000, flags=[shared, host_bound])
    larger = make_record(micro_batch=8, memory_mib=50_000, speed=200.0)
    texts = {
        "cut short": printed(make_record(), is_settled=False),
        "settled, with a doubtful speed": printed(doubtful, is_settled=True),
        "nothing fits": printed(large, larger, pick=None, gain_at_most=None),
        "own arguments do not fit": printed(large, make_record(micro_batch=8, speed=200.0)),
        "by steps, through what was measured": printed(
            make_record(),
            make_record(compile="inductor", speed=150.0),
            make_record(micro_batch=8, speed=160.0, compile="inductor", activations="checkpoint"),
            make_record(micro_batch=8, speed=90.0, compile="eager"),
        ),
        "within chance": printed(
            make_record(measurements={**GPU_BOUND, "samples_per_second_ci95": 0.2}),
            make_record(micro_batch=8, speed=121.0, measurements=GPU_BOUND),
        ),
        "killed": printed(make_record(), make_record(micro_batch=8, speed=200.0)),
        "nothing measured": printed(),
        "trains differently": printed(
            make_record(),
            make_record(
                optimizer="adamw_bnb_8bit",
                base="bnb_8bit",
                speed=150.0,
                recipe={"optimizer": "adamw_bnb_8bit", "base": "bnb_8bit"},
            ),
            recipe="any",
        ),
        "three budgets, two with the same pick": printed(
            make_record(),
            make_record(micro_batch=8, speed=200.0, memory_mib=30_000),
            budgets=(1, 32, 40),
            is_settled=False,
        ),
        "trains differently in vain": printed(
            make_record(),
            make_record(optimizer="adafactor", speed=90.0, recipe={"optimizer": "adafactor"}),
            recipe="any",
        ),
    }
    text = "\n\n".join(f"{case}:\n{texts[case]}" for case in texts)
    assert_golden("tune_results.txt", without_ids(text))


def test_result_is_stored_when_the_run_is_published_and_read_from_there(tmp_path):
    records = [make_record(micro_batch=4), make_record(micro_batch=8, speed=200.0)]
    folder = write_run(tmp_path, records, search=search_of(FOUND), budgets=[24 * GIB])
    dataset = publish(folder).dataset
    stored = json.loads((folder / RESULT).read_text())
    assert plain_json(to_json(read(dataset), {})) == plain_json(to_json(computed(dataset), {}))
    (result,) = load(folder).tune_results
    (plain,) = plain_json(to_json(read(dataset), {result.folder_name: "here"}))["results"]
    assert plain == {**plain, **stored["results"][0], "files": "here"}
    candidate = candidate_of(dataset, result)
    assert candidate.measured.trial_ids[0] == result.best.trial_id == records[1].trial_id
    # What is stored counts, not what another computation would say.
    stored["results"][0] |= {"gain": 7.0, "changes": "micro_batch 8"}
    (folder / RESULT).write_text(json.dumps(stored))
    assert "×7.00 in speed" in describe(read(load_dataset(folder)), {})
    (folder / RESULT).write_text("{}")
    with pytest.raises(UnreadableRunError, match="damaged"):
        read(load_dataset(folder))


def test_result_of_a_recorded_run_is_computed_when_it_is_read():
    results = load(RECORDED / "2026-11-26-tune_llm_1b-h200").tune_results
    assert [own.budget_bytes for own in results] == [24 * GIB, 40 * GIB, 80 * GIB]
    for result in results:
        assert result.best.memory_bytes <= result.budget_bytes
        assert result.recommendation["best"]["trial_id"] == result.best.trial_id


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "gain at most +1.2 % in speed, by the search's model, which was not sure yet"),
        ({"is_settled": True}, "gain at most +1.2 % in speed, with 95 % probability"),
        ({"gain_at_most": 0.0}, "none of the unmeasured configurations is faster, by the search"),
        ({"gain_at_most": 3.0}, "gain at most ×4.00 in speed"),
        ({"gain_at_most": 283.0}, "too little is known"),
        ({"gain_at_most": None}, "not known"),
        ({"pick": None, "is_settled": True}, "nothing considered fits"),
        ({"pick": None}, "whether anything does is not known"),
    ],
)
def test_certainty_says_what_could_still_be_gained(changed, words):
    assert words in certainty(replace(FOUND, **changed))


def test_report_of_a_search_for_budgets_has_a_row_for_each():
    assert counts(FOUND) == "considered 12,345, ruled out without a trial 6,000, measured 20"
    across = replace(FOUND, budget_bytes=None, recipe="any")
    search = SearchSummary(
        kind="best", planned=12_345, measured=20, skipped={}, results=(FOUND, across)
    )
    run = RunMetadata(name="own", search=asdict(search))
    (table,) = results(dataset_of_records([make_record()], run)).tables
    first, second = ([own.text(row) for own in table.columns] for row in table.rows)
    assert first == ["24 GiB", "the same", "12,345", "6,000", "20", certainty(FOUND)]
    assert second[:2] == ["any", "any"]
    assert results(dataset_of_records([make_record()], RunMetadata(name="own"))) is None


def test_trials_that_crashed_are_listed_with_their_reason():
    crashed = make_record(micro_batch=8, outcome=Outcome.CRASHED, reason="SIGSEGV in the step")
    too_large = make_record(micro_batch=16, outcome=Outcome.OUT_OF_MEMORY)
    dataset = dataset_of_records([make_record(), crashed, too_large], RunMetadata(name="own"))
    (line,) = failures(dataset).splitlines()
    assert line.startswith("1 trial ended as crashed: SIGSEGV in the step (such as ")
    assert "batch 8" in line
    assert not failures(dataset_of_records([make_record()], RunMetadata(name="own")))
