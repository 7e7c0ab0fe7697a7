"""`tune` on a simulated decoder of 1.2 B parameters, knowing other models only."""

import pytest

from jobs.record import Outcome
from jobs.spec import TrialSpec
from orchestrator.running.tune_run import SEARCH_SHARE
from orchestrator.search.best.search import BestSearch
from orchestrator.units import GIB
from tests.benchmarks.tuned.decoder import along, recorded_curves, truth_of
from tests.benchmarks.tuned.machine import Machine, best_search, recorded_speed, space
from tests.support.devices import asked_by

MINUTES = 2.0
NOISE = 0.01


@pytest.fixture(scope="module")
def replayed() -> tuple[Machine, BestSearch, list[TrialSpec]]:
    """A whole search of two GPU-minutes, and its trials."""
    machine = Machine(0, NOISE)
    search = best_search(machine, MINUTES)
    return machine, search, asked_by(search, machine.run)


def test_best_search_finds_compiled_configurations_of_a_decoder_soon(replayed):
    machine, search, asked = replayed
    compiled = [trial for trial in asked if "regional" in str(trial.choices["compile"])]
    before = asked[: asked.index(compiled[0])]
    assert sum(machine.records[trial.trial_id].slot_seconds for trial in before) < 30
    # An expert's grid of 45 trials took three minutes. With this seed, the slowest pick has 0.88 of
    # the expert's speed or more after two.
    for result in search.results():
        expert = recorded_speed(result.budget_bytes or 0)
        assert result.pick.samples_per_second > 0.85 * expert


def test_best_search_tries_no_slow_build_that_promises_little(replayed):
    machine, _, asked = replayed
    assert {trial.choices["offload"] for trial in asked} == {"none"}
    assert machine.spent < 60 * MINUTES * SEARCH_SHARE + 15


def test_best_search_says_that_untried_techniques_may_gain(replayed):
    _, search, _ = replayed
    for result in search.results():
        assert result.considered > 10_000
        assert result.gain_at_most is not None
        assert 0.01 < result.gain_at_most < 1.5
        assert not result.is_settled


def test_decoder_is_as_recorded_where_there_are_rows():
    curve = recorded_curves()["inductor_regional", "budget_0.5", "chunked"]
    choices = {**space().config.baseline, "compile": "inductor_regional", "micro_batch": 16}
    choices |= {"activations": "budget_0.5", "loss": "chunked"}
    truth = truth_of(choices, 3)
    assert truth.seconds == pytest.approx(along(curve.sizes, curve.seconds, 16))
    assert truth.memory_bytes == pytest.approx(along(curve.sizes, curve.memory_bytes, 16))


def test_machine_builds_only_once():
    machine = Machine(0, 0.0)
    offloaded = []
    for trial in space().plan.trials:
        if trial.choices["offload"] == "zero2_cpu_optimizer" and trial.micro_batch == 2:
            offloaded.append(trial)
    first, second = (machine.run(trial) for trial in offloaded[:2])
    assert first.outcome is second.outcome is Outcome.OK
    assert first.measurements["device_peak_bytes"] < 40 * GIB
    assert first.slot_seconds > second.slot_seconds + 30
