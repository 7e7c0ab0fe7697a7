"""The fit of how far equal trials differ, on invented runs."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.analysis.dataset import load_dataset
from orchestrator.analysis.repeatability import BETWEEN_TRIALS, Pace
from tests.benchmarks.recorded import repeatability
from tests.benchmarks.recorded.repeatability import Pair, is_pace_known
from tests.support.records import GPU_BOUND, make_record, write_run


def printed_figures(text: str) -> list[float]:
    """The numbers of a line, percentages as shares and milliseconds as seconds."""
    words = text.replace("%", " %").split()
    units = {"%": 0.01, "%,": 0.01, "ms": 0.001, "ms,": 0.001}
    figures = []
    for word, unit in zip(words, [*words[1:], ""], strict=True):
        number = word.rstrip(";")
        if number.replace(".", "", 1).isdigit():
            figures.append(float(number) * units.get(unit, 1.0))
    return figures


def test_repeatability_leaves_out_rows_of_unknown_pace(tmp_path):
    unknown = {**GPU_BOUND, "launch_bound_update_share": None}
    waiting = {**unknown, "host_bound_share": 0.9}
    runs = []
    for name in ("one", "other"):
        records = [
            make_record(micro_batch=1, measurements=GPU_BOUND),
            make_record(micro_batch=2, measurements=unknown),
            make_record(micro_batch=4, measurements=waiting),
        ]
        runs.append((name, load_dataset(write_run(tmp_path / name, records))))
    found = repeatability.pairs(runs)
    assert sorted(pair.pace for pair in found) == [Pace.GPU, Pace.HOST]
    [rows] = {tuple(map(is_pace_known, dataset.rows)) for _, dataset in runs}
    assert sorted(rows) == [False, True, True]


def test_repeatability_keeps_a_row_whose_steps_do_not_vary(tmp_path):
    exact = {**GPU_BOUND, "samples_per_second_ci95": 0.0}
    runs = []
    for name in ("one", "other"):
        folder = write_run(tmp_path / name, [make_record(measurements=exact)])
        runs.append((name, load_dataset(folder)))
    [pair] = repeatability.pairs(runs)
    assert pair.own_errors == (0.0, 0.0)


def invented(shift: Callable[[int, str], float]) -> list[Pair]:
    """Pairs of 40 pairs of runs: ``shift`` is what rows of a pair and a technique share."""
    chance = random.Random(0)
    found = []
    for runs in range(40):
        shared = {name: shift(runs, name) for name in ("keep", "checkpoint")}
        for number in range(40):
            activations = ("keep", "checkpoint")[number % 2]
            pair = Pair(
                runs=(f"{runs}", "other"),
                configuration=(f"{runs}", f"{number}"),
                paces=(Pace.GPU, Pace.GPU),
                choices={"activations": activations},
                log_ratio=shared[activations] + chance.gauss(0, 0.002 * math.sqrt(2)),
                steps=(1.0, 1.0),
                constant_over=1.0,
                own_errors=(0.0, 0.0),
                log_energy_ratio=None,
                counted_seconds=1.0,
                waits=(0.0, 0.0),
            )
            found.append(pair)
    return found


def test_repeatability_prints_what_rows_and_techniques_share():
    chance = random.Random(1)
    drawn = [(chance.gauss(0, 0.01), chance.gauss(0, 0.006)) for _ in range(40)]

    def shift(runs: int, technique: str) -> float:
        of_all, of_technique = drawn[runs]
        return of_all + (of_technique / 2 if technique == "keep" else -of_technique / 2)

    found = invented(shift)
    variation = replace(BETWEEN_TRIALS[Pace.GPU], relative=0.002, seconds=0.0)
    assert repeatability.fit(found).between_runs == pytest.approx(0.01, rel=0.3)
    [of_techniques] = repeatability.shared_by_techniques(found, variation)
    assert printed_figures(of_techniques)[-1] == pytest.approx(0.006, rel=0.3)


def test_repeatability_fit_finds_the_spread_of_single_trials():
    variation = repeatability.fit(invented(lambda runs, technique: 0.0))
    # All steps take a second, so that the two parts of the spread cannot be separated.
    assert math.hypot(variation.relative, variation.seconds) == pytest.approx(0.002, rel=0.1)


def test_repeatability_counts_a_configuration_of_many_runs_by_its_independent_differences():
    [pair, *_] = invented(lambda runs, technique: 0.0)
    three = [replace(pair, runs=runs) for runs in (("a", "b"), ("b", "c"), ("a", "c"))]
    two = replace(pair, configuration=("another",))
    assert list(repeatability._weights([*three, two])) == pytest.approx([2 / 3] * 3 + [1])


def test_repeatability_judges_each_interval_by_the_pace_of_its_own_trial():
    [pair, *_] = invented(lambda runs, technique: 0.0)
    mixed = replace(pair, paces=(Pace.GPU, Pace.HOST), log_ratio=-0.1, waits=(0.0, 0.5))
    narrow = BETWEEN_TRIALS[Pace.GPU]
    assert repeatability._held([mixed], Pace.GPU, narrow) == [False]
    assert repeatability._held([mixed], Pace.HOST, BETWEEN_TRIALS[Pace.HOST]) == [True]
    assert repeatability._held([mixed], Pace.LAUNCHES, narrow) == []
    # A tenth of the step: the host is as slow for it as for many others.
    short = replace(mixed, steps=(0.05, 0.055))
    assert repeatability._held([short], Pace.GPU, narrow) == [True]


def test_repeatability_finds_what_slow_hosts_add_to_short_steps():
    chance = random.Random(2)
    found = [
        replace(
            pair,
            log_ratio=chance.gauss(0, math.hypot(0.003, (0.02 / step) ** 2)),
            steps=(step,) * 2,
        )
        for pair in invented(lambda runs, technique: 0.0)
        for step in (chance.choice((0.06, 0.1, 0.5)),)
    ]
    same = [pair for pair in found if pair.steps[0] == 0.5]
    fitted = repeatability.whole_fit(Pace.GPU, same, found)
    assert fitted.slow_host_seconds == pytest.approx(0.02, rel=0.15)


def test_repeatability_finds_how_the_spread_grows_with_waits():
    chance = random.Random(3)
    found = [
        replace(
            pair,
            paces=(Pace.HOST, Pace.HOST),
            log_ratio=chance.gauss(0, math.sqrt(2) * 0.1 * share**0.5),
            waits=(share, share / 2),
        )
        for pair in invented(lambda runs, technique: 0.0)
        for share in (chance.uniform(0.1, 1),)
    ]
    fitted = repeatability.fit(found)
    assert fitted.waits_power == pytest.approx(0.5, abs=0.1)
    assert math.hypot(fitted.relative, fitted.seconds) == pytest.approx(0.1, rel=0.1)
