"""Why two trials differ: parts add up, every part has its figures, and limits are said."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import TrialRecord
from orchestrator.analysis.dataset import load_dataset
from orchestrator.analysis.explanation.result import Explanation
from orchestrator.analysis.explanation.two_trials import explain
from orchestrator.analysis.loss_parity.windows import CheckState
from orchestrator.reporting.verbs.explanation import loss_lines, render, seconds
from tests.support.golden import assert_golden
from tests.support.records import make_anatomy, make_record, profile_of, with_losses, write_run

SLOW = make_record(
    speed=100,
    precision="fp32",
    anatomy=make_anatomy(),
    measurements={
        "matmul_dtype": "float32",
        "first_step_seconds": 0.8,
        "gpu_sm_clock_mhz": 1800.0,
        "gpu_power_capped_share": 0.0,
    },
)
FAST = replace(
    make_record(
        memory_mib=640,
        speed=150,
        precision="bf16",
        recipe={"dtype": "bf16"},
        flags=[Flag(FlagKind.UNSTABLE, 0.051)],
        measurements={
            "matmul_dtype": "bfloat16",
            "first_step_seconds": 60.8,
            "gpu_sm_clock_mhz": 1795.0,
            "gpu_power_capped_share": 0.9,
        },
    ),
    steps={"step_seconds": [0.5, 0.1, 0.1], "loss": [3.01, 2.0, 1.25]},
)


def explained(
    folder: Path, first: TrialRecord, second: TrialRecord, *more: TrialRecord
) -> Explanation:
    dataset = load_dataset(write_run(folder, [first, second, *more]))
    return explain(dataset, first.trial_id, second.trial_id)


def test_render_gives_every_part_its_figures(tmp_path):
    explanation = explained(tmp_path, SLOW, FAST, profile_of(FAST, 0.4))
    text = render(explanation).replace(SLOW.trial_id, "<trial A>")
    assert_golden("explanation.txt", text.replace(FAST.trial_id, "<trial B>"))


def test_render_of_one_trial_twice_finds_no_difference(tmp_path):
    dataset = load_dataset(write_run(tmp_path, [SLOW]))
    text = render(explain(dataset, SLOW.trial_id, SLOW.trial_id))
    assert "Configuration differences (A -> B): none." in text
    assert "Time per sample: the same" in text
    assert "Losses: equal in each of the 3 steps" in text
    assert "Runtime differences" not in text


@pytest.mark.parametrize(
    ("more", "source"), [([], "columns"), ([profile_of(FAST, 0.4)], "anatomy")]
)
def test_explain_terms_add_up_to_the_figures(more, source, tmp_path):
    explanation = explained(tmp_path, SLOW, FAST, *more)
    for breakdown in (explanation.seconds_per_sample, explanation.memory_bytes):
        assert breakdown.source == source
        assert sum(term.before for term in breakdown.terms) == pytest.approx(breakdown.before)
        assert sum(term.after for term in breakdown.terms) == pytest.approx(breakdown.after)
    assert explanation.seconds_per_sample.after == pytest.approx(1 / 150)


def test_explain_scales_a_profiled_step_that_was_slower_and_says_so(tmp_path):
    slow = replace(SLOW, anatomy=make_anatomy(10))
    explanation = explained(tmp_path, slow, FAST, profile_of(FAST, 1))
    terms = {term.name: term for term in explanation.seconds_per_sample.terms}
    assert terms["tensor contractions"].before == pytest.approx(0.01 * 240 / 256)
    assert terms["idle"].before == pytest.approx(0)
    warning = "! A: the profiled step took 6.40 times as long as a counted step"
    assert warning in render(explanation)


@pytest.mark.parametrize(
    ("losses", "state", "compared", "first", "last"),
    [
        ([1.0] * 8, CheckState.MATCHES, 8, "Losses: equal in each of the 8 steps", ""),
        (
            [1.0] * 4 + [2.0] * 4,
            CheckState.MISMATCH,
            8,
            "Losses: loss mismatch. The largest difference is 1, in step 5 of 8.",
            "  steps 5 to 8: mean loss 1 -> 2, a difference of 100 %; up to 60 % could be chance",
        ),
        # Compared up to the first that is not finite.
        ([1.0, float("nan")] + [1.0] * 6, CheckState.NOT_CHECKED, 1, "", ""),
    ],
)
def test_loss_lines_tell_a_match_from_a_mismatch(losses, state, compared, first, last, tmp_path):
    steady = with_losses(make_record(micro_batch=1), [1.0] * 8)
    other = with_losses(make_record(micro_batch=2), losses)
    curves = explained(tmp_path, steady, other).losses
    assert (curves.state, len(curves.after)) == (state, compared)
    lines = list(loss_lines(curves))
    assert lines[0].startswith(first)
    assert lines[-1].endswith(last)


@pytest.mark.parametrize(
    ("value", "text"), [(1.5, "1.50 s"), (0.0029, "2.90 ms"), (-0.0005, "−0.5 ms"), (1e-17, "0 ms")]
)
def test_seconds_reads_well(value, text):
    assert seconds(value) == text
