"""What a trial is expected to take: its steps, its compiler, and what is built once."""

from dataclasses import replace

import numpy as np
import pytest

from jobs.record import TrialRecord
from jobs.spec import DataSpec, Hook, SyntheticData, TrialSpec
from jobs.spec.model_and_data import RowLengthDistribution
from orchestrator.search.best.trial_cost import USUAL_SECONDS, TrialCost
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.effects.technique_priors import shipped_priors
from tests.benchmarks.grids import make_record, make_spec

SPEED = 80.0
"""Samples per second of every trial here."""


def spec(*, builds: tuple[str, ...] = (), **choices: str) -> TrialSpec:
    usual = {"activations": "keep", "compile": "none", "offload": "none"}
    made = make_spec({**usual, **choices, "micro_batch": 8, "accumulation": 1})
    return replace(made, settings=replace(made.settings, builds=builds))


EAGER = spec()
WHOLE = spec(compile="inductor")
WHOLE_CHECKPOINT = spec(compile="inductor", activations="checkpoint")
BLOCKS = spec(compile="inductor_regional")
OFFLOAD = spec(offload="zero2_cpu_optimizer", builds=("cpu_adam",))
OTHER_OFFLOAD = spec(offload="zero3_cpu_both", builds=("cpu_adam",))
TRIALS = [EAGER, WHOLE, WHOLE_CHECKPOINT, BLOCKS, OFFLOAD, OTHER_OFFLOAD]


@pytest.fixture
def cost() -> TrialCost:
    return TrialCost(candidates_of(TRIALS), shipped_priors())


def seconds(cost: TrialCost, trial: TrialSpec) -> float:
    return float(cost.seconds(np.full(len(TRIALS), SPEED))[TRIALS.index(trial)])


def took(trial: TrialSpec, slot_seconds: float) -> TrialRecord:
    return make_record(trial, 1e9, SPEED, slot_seconds=slot_seconds)


def test_trial_cost_expects_compilers_and_builds_before_any_trial(cost):
    assert seconds(cost, EAGER) < 2 * USUAL_SECONDS + 20
    assert seconds(cost, WHOLE) > seconds(cost, EAGER) + 30
    assert seconds(cost, OFFLOAD) > seconds(cost, EAGER) + 40


def test_trial_cost_learns_what_a_compiler_takes_here(cost):
    before = seconds(cost, WHOLE_CHECKPOINT)
    cost.note(TRIALS.index(EAGER), took(EAGER, seconds(cost, EAGER)))
    cost.note(TRIALS.index(WHOLE), took(WHOLE, seconds(cost, WHOLE) - 35))
    after = seconds(cost, WHOLE_CHECKPOINT)
    assert before - 45 < after < before - 25


def test_trial_cost_of_a_compiler_follows_a_similar_one(cost):
    eager, before = seconds(cost, EAGER), seconds(cost, WHOLE)
    cost.note(TRIALS.index(BLOCKS), took(BLOCKS, eager + 3 * (seconds(cost, BLOCKS) - eager)))
    # The second trial finds its code in the cache, but one of another option would not.
    cost.note(TRIALS.index(BLOCKS), took(BLOCKS, eager))
    assert seconds(cost, WHOLE) == pytest.approx(eager + 3 * (before - eager))
    # Its own trial counts more than those of similar techniques.
    cost.note(TRIALS.index(WHOLE), took(WHOLE, before))
    assert seconds(cost, WHOLE) == pytest.approx(before)


def test_trial_cost_counts_a_build_until_it_is_there(cost):
    before = seconds(cost, OTHER_OFFLOAD)
    cost.note(TRIALS.index(OFFLOAD), took(OFFLOAD, seconds(cost, OFFLOAD)))
    assert seconds(cost, OTHER_OFFLOAD) < before - 40


def test_trial_cost_of_a_trial_without_speed_learns_nothing(cost):
    before = seconds(cost, WHOLE)
    cost.note(TRIALS.index(WHOLE), make_record(WHOLE, 1e9, None, slot_seconds=300.0))
    assert seconds(cost, WHOLE) == before


def ragged(**choices: str) -> TrialSpec:
    lengths = RowLengthDistribution(distribution="lognormal", mean=100.0)
    data = DataSpec(synthetic=SyntheticData(lengths=lengths))
    return replace(spec(**choices), data=data)


def test_trial_cost_on_rows_of_unequal_length_counts_their_lengths(cost):
    padded = ragged(compile="inductor_regional", batching="pad_to_64")
    hooks = {"batching": Hook("padded_to_multiple", {"multiple": 64})}
    padded = replace(padded, settings=replace(padded.settings, hooks=hooks))
    trials = [ragged(), ragged(compile="inductor_regional"), padded]
    unequal = TrialCost(candidates_of(trials), shipped_priors())
    own, compiled, multiple = unequal.seconds(np.full(len(trials), SPEED))
    once = seconds(cost, BLOCKS) - seconds(cost, EAGER)
    # Another, four of a turn, and the longest rows at the end are lengths of their own.
    assert compiled - own == pytest.approx(6 * once)
    assert multiple - own == pytest.approx(2 * once)
    # Six steps are new where two warm up on equal rows, and a step is a tenth of a second.
    assert own - seconds(cost, EAGER) == pytest.approx(0.4)


def test_trial_cost_expects_the_first_trial_to_read_what_later_ones_find(cost):
    before = seconds(cost, EAGER)
    cost.note(TRIALS.index(EAGER), took(EAGER, before + 20))
    assert seconds(cost, EAGER) == pytest.approx(before)
    cost.note(TRIALS.index(EAGER), took(EAGER, before + 5))
    assert seconds(cost, EAGER) == pytest.approx(before + 5)


def test_trial_cost_of_packed_rows_learns_from_any_trial_how_many_are_in_a_block(cost):
    def packed(activations: str) -> TrialSpec:
        made = spec(activations=activations, batching="packed_whole_rows")
        hooks = {"batching": Hook("packed_whole_rows")}
        return replace(made, settings=replace(made.settings, hooks=hooks))

    trials = [packed("keep"), packed("checkpoint"), EAGER]
    known = TrialCost(candidates_of(trials), shipped_priors())
    speeds = np.full(len(trials), SPEED)
    before = known.seconds(speeds)
    # Rows of a fifth of the longest, so that five are in a block: forty of 80 in a second.
    steps = candidates_of(trials)[0].steps
    tokens = {"real_tokens_per_second": SPEED * EAGER.data.tokens / 5}
    record = took(EAGER, before[2])
    known.note(2, replace(record, measurements={**record.measurements, **tokens}))
    # Later trials trained on other rows of the same data.
    tokens["real_tokens_per_second"] *= 2
    known.note(2, replace(record, measurements={**record.measurements, **tokens}))
    after = known.seconds(speeds)
    assert after[1] - before[1] == pytest.approx(steps * 0.4)
    assert after[2] == before[2]
