"""The gain over the baseline: the first figure that a reader sees."""

from collections.abc import Iterator, Sequence

from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.gain_over_default import Defaults, Gain
from orchestrator.analysis.recommendation import Constraints
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.analysis.repeatability import NEARLY
from orchestrator.reporting.content import Content
from orchestrator.units import memory, number


def make(dataset: Dataset) -> Content | None:
    """A sentence with the gain of the pick, in the smallest budget that the baseline fits, too.
    Without such a budget, in the smallest that anything fits; without budgets, of all."""
    shown, results = _shown(dataset), dataset.main
    if results is None or shown is None:
        return None
    budget, pick, gain = shown
    which = "the fastest of all" if budget is None else f"the fastest in {memory(budget)}"
    if budget is None and len(results.fronts) > 1:
        which = "the fastest with the same training recipe"
    label = dataset.pick_label(pick.configuration)
    text = f"{headline(gain)}, by {which}: {label}. {comparison(dataset, gain)}."
    if gain.is_default:
        text = f"The techniques of the baseline are {which}: {label}."
    elif not _default_fits(shown):
        speed = number(pick.configuration.samples_per_second)
        text = (
            f"{speed} samples/s in {memory(pick.memory_bytes)}, by {which}: {label}. The baseline "
            f"fits no budget. {comparison(dataset, gain)}."
        )
    return Content(title="", text=(text,))


def _shown(dataset: Dataset) -> tuple[int | None, Offer, Gain] | None:
    compared = list(_compared(dataset))
    return next(filter(_default_fits, compared), next(iter(compared), None))


def _compared(dataset: Dataset) -> Iterator[tuple[int | None, Offer, Gain]]:
    """Each budget of the run, or None if it names none, with its pick and the pick's gain."""
    if dataset.main is None:
        return
    ranking, defaults = dataset.main.rankings.under(Constraints()), Defaults(dataset.main)
    budgets: Sequence[int | None] = sorted(dataset.run.budgets) or [None]
    for budget in budgets:
        pick = ranking.pick(budget)
        gain = None if pick is None else defaults.gain(pick)
        if pick is not None and gain is not None:
            yield budget, pick, gain


def _default_fits(compared: tuple[int | None, Offer, Gain]) -> bool:
    budget, _, gain = compared
    return budget is None or gain.default.memory_bytes <= budget


def first_budget(dataset: Dataset) -> int | None:
    """That of the sentence, in bytes. Without a gain, the run's smallest that anything fits, if
    any; None if it names none."""
    if (shown := _shown(dataset)) is not None:
        return shown[0]
    named = sorted(dataset.run.budgets)
    if dataset.main is not None:
        ranking = dataset.main.rankings.under(Constraints())
        named = [budget for budget in named if ranking.pick(budget) is not None] or named
    return min(named, default=None)


def headline(gain: Gain) -> str:
    """``5.0 × the baseline's throughput at half its memory``."""
    if gain.is_default:
        return "The techniques of the baseline are the fastest here"
    speed = _speed(gain.speed_ratio)
    # A difference within chance is no gain, and no loss either.
    if gain.is_within_chance and abs(gain.speed_ratio - 1) > NEARLY:
        speed = f"The baseline's throughput, within chance ({gain.speed_ratio:.2g} ×),"
    return f"{speed} {_memory(gain.memory_ratio)}"


def comparison(dataset: Dataset, gain: Gain) -> str:
    """The baseline that the headline compares with: its label and figures."""
    default = gain.default.configuration
    figures = f"{number(default.samples_per_second)} samples/s in {memory(default.memory_bytes)}"
    inferred = ", inferred" if gain.default.is_inferred else ""
    other = "" if gain.is_same_batch else "; it was not measured at this effective batch"
    return f"Baseline: {dataset.pick_label(default)}, {figures}{inferred}{other}"


def _speed(ratio: float) -> str:
    if abs(ratio - 1) <= NEARLY:
        return "The baseline's throughput"
    # Two digits are enough for a headline. A slower pick is written in the same way.
    factor = f"{ratio:.2g}"
    if ratio >= 1:
        factor = f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"
    return f"{factor} × the baseline's throughput"


def _memory(ratio: float) -> str:
    if abs(ratio - 1) <= NEARLY:
        return "in the same memory"
    if abs(ratio - 0.5) <= NEARLY:
        return "at half its memory"
    return f"at {100 * ratio:.0f} % of its memory" if ratio < 1 else f"at {ratio:.1f} × its memory"
