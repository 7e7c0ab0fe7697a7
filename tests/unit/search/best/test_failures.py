"""Which techniques the search gives up after failed trials."""

import itertools

import pytest

from jobs.record import Outcome, Provenance, TrialRecord
from orchestrator.search.base import TOO_SLOW
from orchestrator.search.best.failures import Failures
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from tests.benchmarks.grids import make_spec

BUDGETS = ("keep", "budget_0.5", "budget_0.2")
LOSSES = ("plain", "liger")
COMPILERS = ("none", "inductor_regional")


class Trials:
    """Every combination of a few choices, and what failed so far."""

    def __init__(self) -> None:
        self.names = []
        specs = []
        for activations in BUDGETS:
            for loss in LOSSES:
                for compiler in COMPILERS:
                    self.names.append((activations, loss, compiler))
                    choices = {"activations": activations, "loss": loss, "compile": compiler}
                    specs.append(make_spec({**choices, "micro_batch": 8, "accumulation": 1}))
        self.candidates = candidates_of(specs)
        self.failures = Failures(self.candidates, TechniquePriors())

    def end(
        self, outcome: Outcome, *name: str, seconds: float = 3.0, reason: str = "", rule: str = ""
    ) -> None:
        """Note the end of a trial."""
        index = self.names.index(tuple(name))  # type: ignore[arg-type]
        provenance = Provenance(slot_seconds=seconds)
        trial = self.candidates[index].trials[0]
        record = TrialRecord(
            spec=trial, outcome=outcome, reason=reason, rule=rule, provenance=provenance
        )
        self.failures.note(index, record)

    def late_seconds(self, *name: str) -> float:
        """The seconds to be expected of a combination after trials that timed out."""
        return float(self.failures.late_seconds()[self.names.index(tuple(name))])  # type: ignore[arg-type]

    def given_up(self, *name: str) -> bool:
        """Whether a combination is given up."""
        return bool(self.failures.given_up[self.names.index(tuple(name))])  # type: ignore[arg-type]

    def probability(self, *name: str) -> float:
        """The probability that a combination works."""
        index = self.names.index(tuple(name))  # type: ignore[arg-type]
        return float(self.failures.probability_to_work()[index])


@pytest.fixture
def trials() -> Trials:
    """After a compiled trial and one with the fused loss have run."""
    trials = Trials()
    trials.end(Outcome.OK, "keep", "plain", "none")
    trials.end(Outcome.OK, "keep", "plain", "inductor_regional")
    trials.end(Outcome.OK, "keep", "liger", "none")
    return trials


def test_failed_pair_is_given_up_at_once_if_nothing_else_is_unproven(trials):
    trials.end(Outcome.FAILED, "keep", "liger", "inductor_regional")
    assert trials.given_up("budget_0.5", "liger", "inductor_regional")
    # Each of the two still runs without the other.
    assert not trials.given_up("budget_0.5", "plain", "inductor_regional")
    assert not trials.given_up("budget_0.5", "liger", "none")


def test_failed_trial_blames_no_new_choice_that_a_pair_excuses(trials):
    before = trials.probability("budget_0.2", "liger", "inductor_regional")
    trials.end(Outcome.FAILED, "budget_0.5", "liger", "inductor_regional")
    assert not trials.given_up("budget_0.5", "plain", "inductor_regional")
    assert not trials.given_up("budget_0.2", "liger", "inductor_regional")
    assert trials.probability("budget_0.2", "liger", "inductor_regional") < 0.5 * before
    # A second failure with another budget leaves the pair as the cause.
    trials.end(Outcome.FAILED, "budget_0.2", "liger", "inductor_regional")
    assert trials.given_up("keep", "liger", "inductor_regional")
    assert not trials.given_up("budget_0.2", "plain", "inductor_regional")


def test_pair_that_works_later_is_cleared(trials):
    trials.end(Outcome.FAILED, "budget_0.5", "liger", "inductor_regional")
    trials.end(Outcome.OK, "keep", "liger", "inductor_regional")
    assert trials.probability("keep", "liger", "inductor_regional") == 1.0


def test_single_new_choice_of_a_failed_trial_is_given_up(trials):
    trials.end(Outcome.FAILED, "budget_0.5", "plain", "none")
    assert trials.given_up("budget_0.5", "plain", "inductor_regional")
    assert not trials.given_up("budget_0.2", "plain", "inductor_regional")


def test_trial_that_timed_out_makes_its_only_new_choice_slow(trials):
    trials.end(Outcome.TIMED_OUT, "budget_0.5", "liger", "none", seconds=60.0)
    assert trials.late_seconds("budget_0.5", "plain", "none") == 60.0
    # The fused loss has run within its time.
    assert trials.late_seconds("keep", "liger", "none") == 0.0


def test_trial_that_timed_out_blames_each_of_its_new_choices_in_part():
    trials = Trials()
    trials.end(Outcome.OK, "keep", "plain", "none")
    trials.end(Outcome.TIMED_OUT, "budget_0.5", "liger", "none", seconds=60.0)
    assert trials.late_seconds("keep", "liger", "none") == 30.0
    assert trials.late_seconds("budget_0.5", "liger", "inductor_regional") == 60.0
    # Once one of them has run, the other is to blame.
    trials.end(Outcome.OK, "keep", "liger", "none")
    assert trials.late_seconds("keep", "liger", "inductor_regional") == 0.0
    assert trials.late_seconds("budget_0.5", "plain", "none") == 60.0


def test_trial_that_timed_out_blames_its_compiler_alone():
    trials = Trials()
    trials.end(Outcome.TIMED_OUT, "budget_0.5", "liger", "inductor_regional", seconds=60.0)
    late = {name: trials.late_seconds(*name) for name in trials.names}
    assert late == {name: 60.0 * (name[2] != "none") for name in trials.names}


def test_trial_that_timed_out_makes_similar_choices_slow_until_they_run():
    trials = Trials()
    trials.end(Outcome.OK, "keep", "plain", "none")
    trials.end(Outcome.TIMED_OUT, "budget_0.5", "plain", "none", seconds=60.0)
    assert trials.late_seconds("budget_0.2", "plain", "none") == 60.0
    trials.end(Outcome.OK, "budget_0.2", "plain", "none")
    assert trials.late_seconds("budget_0.2", "plain", "none") == 0.0
    assert trials.late_seconds("budget_0.5", "plain", "none") == 60.0


def test_trial_that_was_too_slow_for_its_search_counts_as_a_failure(trials):
    trials.end(Outcome.SKIPPED, "budget_0.5", "plain", "none", seconds=60.0, rule=TOO_SLOW)
    assert trials.late_seconds("budget_0.5", "liger", "none") == 60.0
    assert trials.given_up("budget_0.5", "plain", "none")


def test_failures_with_one_reason_blame_no_choice_that_a_pair_excuses(trials):
    for budget in ("budget_0.5", "budget_0.2"):
        trials.end(Outcome.FAILED, budget, "liger", "inductor_regional", reason="no such kernel")
    assert not trials.given_up("budget_0.5", "plain", "none")
    # Both trials have the pair, and nothing else.
    assert trials.given_up("keep", "liger", "inductor_regional")


def test_only_new_choice_of_two_failures_with_one_reason_is_given_up():
    trials = Trials()
    reason = "this model does not do that"
    trials.end(Outcome.UNSUPPORTED, "budget_0.5", "liger", "none", reason=reason)
    assert not trials.given_up("budget_0.5", "plain", "none")
    trials.end(Outcome.UNSUPPORTED, "budget_0.5", "plain", "inductor_regional", reason=reason)
    assert trials.given_up("budget_0.5", "plain", "none")
    assert not trials.given_up("keep", "liger", "none")


def test_failures_with_two_reasons_have_two_causes():
    trials = Trials()
    trials.end(Outcome.FAILED, "budget_0.5", "liger", "none", reason="one reason")
    trials.end(Outcome.FAILED, "budget_0.5", "plain", "inductor_regional", reason="another reason")
    assert not trials.given_up("budget_0.5", "plain", "none")


@pytest.fixture
def sizes():
    """What crashes of two losses, each compiled and not, at three micro-batches give up; eager ones
    ran."""
    names = list(itertools.product(LOSSES, COMPILERS, (2, 4, 8)))
    specs = [
        make_spec({"loss": loss, "compile": compiler, "micro_batch": size, "accumulation": 1})
        for loss, compiler, size in names
    ]
    failures = Failures(candidates_of(specs), TechniquePriors())

    def end(name: tuple[str, str, int], outcome: Outcome) -> None:
        index = names.index(name)
        failures.note(index, TrialRecord(spec=specs[index], outcome=outcome))

    def given_up_after(*crashed: tuple[str, int]) -> list[tuple[str, int]]:
        for name in names:
            if name[1] == "none":
                end(name, Outcome.OK)
        for loss, size in crashed:
            end((loss, "inductor_regional", size), Outcome.CRASHED)
        mask = failures.given_up
        return [(loss, size) for i, (loss, _, size) in enumerate(names) if mask[i]]

    return given_up_after


COMPILED = list(itertools.product(LOSSES, (2, 4, 8)))


@pytest.mark.parametrize(
    ("crashed", "given_up"),
    [
        ([("plain", 4)], [("plain", 4), ("plain", 8)]),
        # At the smallest batch, the compiler is the only suspect.
        ([("plain", 2)], COMPILED),
        ([("plain", 8), ("plain", 4)], [("plain", 4), ("plain", 8)]),
        # On two curves: what they share.
        ([("plain", 8), ("plain", 4), ("liger", 8)], COMPILED),
    ],
)
def test_crash_gives_up_larger_batches_of_its_curve_or_what_curves_share(sizes, crashed, given_up):
    assert sizes(*crashed) == given_up
