"""A recommendation as lines of text, with the time and price of the user's own training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation import Alternative, Constraints, Offer, Recommendation
from orchestrator.analysis.recommendation.decision import GpuCount
from orchestrator.analysis.recommendation.ranking import Reason
from orchestrator.labels import recipe_label
from orchestrator.reporting.configurations import (
    labels_of_trials,
    memory_meaning,
    not_verified,
    tie_break_sentence,
    wrong_parts,
)
from orchestrator.reporting.recommendation_notes import notes, short_notes
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import HOUR_SECONDS, count, duration, error, memory, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The size of the user's own training."""

    samples: int
    epochs: float = 1.0

    def to_json(self, candidate: Offer, price_per_hour: float | None) -> dict[str, Any]:
        """Seconds of training steps, the price of all GPUs, and their energy; None if not known."""
        samples = self.samples * self.epochs
        seconds = samples / candidate.configuration.samples_per_second
        joules = OBJECTIVES["joules_per_sample"].of(candidate.configuration, None)
        kilowatt_hours = None if joules is None else joules * samples / (1000 * HOUR_SECONDS)
        hours = candidate.configuration.gpus * seconds / HOUR_SECONDS
        return {
            "seconds": seconds,
            "price": None if price_per_hour is None else hours * price_per_hour,
            "kilowatt_hours": kilowatt_hours,
        }

    def describe(self, candidate: Offer, price_per_hour: float | None) -> str:
        """``1,000,000 samples × 3 epochs: 3 h 14 min, price 14.6, 1.86 kWh of GPU energy``."""
        epochs = f" × {self.epochs:g} epochs" if self.epochs != 1 else ""
        figures = self.to_json(candidate, price_per_hour)
        price, energy = figures["price"], figures["kilowatt_hours"]
        parts = [
            duration(figures["seconds"]),
            "" if price is None else f"price {number(price)}",
            "" if energy is None else f"{number(energy)} kWh of GPU energy",
        ]
        what = f"{self.samples:,} samples{epochs}: {', '.join(filter(None, parts))}"
        return f"{what}; start-up, evaluation and saving not counted"


_WORDS: Mapping[str, tuple[str, str]] = {
    "samples_per_second": ("most", "samples/s"),
    "samples_per_second_over_steps": ("most", "samples/s over the whole training"),
    "tokens_per_second": ("most", "tokens/s"),
    "joules_per_sample": ("least", "energy per sample"),
    "dollars_per_million": ("least", "cost per 1,000,000 samples"),
    "host_memory": ("least", "host memory"),
}
"""Objective -> whether the best has most or least of it, and what it is."""
_REASONS: Mapping[Reason, str] = {
    Reason.OTHER_SAMPLES: "with other samples",
    Reason.OTHER_RECIPE: "of other training recipes (--all-training-recipes ranks them)",
    Reason.WRONG_LOSSES: "with wrong losses",
    Reason.NO_FIGURE: "whose figure for the objective was not measured",
    Reason.OTHER_BATCH: "that another one serves the effective batch for, or that cannot",
    Reason.MEMORY: "that need more memory",
}
"""Why configurations are not ranked, in words."""
_SHOWN_SAMPLES = 4
"""Lines for other kinds of samples, as many as for other techniques."""
_NOTHING = "  no measured configuration keeps these constraints"


def render(
    dataset: Dataset, recommendation: Recommendation, workload: Workload | None = None
) -> str:
    """Lines of text: the best, its notes, the next ones, and what each constraint costs."""
    results, asked = dataset.main, _asked(recommendation.constraints)
    if results is None:
        return visible(f"{dataset.name}: {asked}\n{_NOTHING}")
    lines = [f"{dataset.name} on {results.hardware}: {asked}"]
    lines.append(f"  memory: {memory_meaning(results)}")
    if len(dataset.environments) > 1:
        others = [own for own in dataset.environments if own is not results]
        size = count(sum(len(own.configurations) for own in others), "configuration")
        which = f"{count(len(others), 'smaller one')} with {size}"
        lines.append(f"  environments are never ranked together: {which} left out")
    text = RecommendationText(dataset, results, recommendation)
    return visible("\n".join([*lines, *text.best(workload), *text.alternatives()]))


def _asked(constraints: Constraints) -> str:
    """``effective batch 256, within 24 GiB, most samples/s``."""
    batch, limit = constraints.effective_batch, constraints.memory_bytes
    parts = [
        "" if batch is None else f"effective batch {batch}",
        "" if limit is None else f"within {memory(limit)}",
        "all training recipes" if constraints.all_recipes else "",
        " ".join(_WORDS[constraints.objective.name]),
    ]
    return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class RecommendationText:
    """The lines about a recommendation from one environment's configurations."""

    dataset: Dataset
    results: EnvironmentResults
    recommendation: Recommendation

    def best(self, workload: Workload | None = None) -> Iterator[str]:
        """The best candidate with its notes, or that there is none; indented lines."""
        best = self.recommendation.best
        if best is None:
            yield _NOTHING
            return
        yield f"  {self._line(best)}"
        labels = labels_of_trials(self.dataset, self.results.configurations)
        comparisons = self.recommendation.comparisons
        tie_breaks = dict.fromkeys(tie_break_sentence(each, labels) for each in comparisons)
        for line in (*self._cap_check(), *tie_breaks, *notes(self.results, best)):
            yield f"    {line}"
        if workload is not None:
            price_per_hour = self.recommendation.constraints.price_per_hour
            yield f"  {workload.describe(best, price_per_hour)}"

    def alternatives(self) -> Iterator[str]:
        """What else a reader may want, and what was left out."""
        if self.recommendation.runners_up:
            yield "next best, with other techniques:"
        for candidate in self.recommendation.runners_up:
            yield f"  {self._line(candidate)}{short_notes(self.results, candidate)}"
        yield from gpu_count_lines(self.recommendation.gpu_counts, self._line)
        if self.recommendation.nearby:
            yield "near this effective batch:"
        wanted = self.recommendation.constraints.effective_batch
        for nearby in self.recommendation.nearby:
            # 256 instead of 257: 9.89 times the samples/s: batch 32×8 · bf16: at least 299 ...
            batches = f"{nearby.effective_batch} instead of {wanted}"
            line = f"{self._line(nearby.candidate)}{short_notes(self.results, nearby.candidate)}"
            yield f"  {': '.join(filter(None, [batches, self._gain(nearby.ratio), line]))}"
        if self.recommendation.costs:
            yield "what the constraints cost:"
        for cost in self.recommendation.costs:
            # With 9.37 GiB instead of 8: 10 % less energy per sample: batch 8 · bf16.
            label = self.dataset.pick_label(cost.candidate.configuration)
            parts = [self._loosened(cost), self._gain(cost.ratio), label]
            yield f"  {': '.join(filter(None, parts))}"
        yield from self._left_out()
        yield from self._other_samples()
        yield from self._not_ranked()

    def _cap_check(self) -> Iterator[str]:
        limit, check = self.recommendation.constraints.memory_bytes, self.recommendation.check
        if limit is None or limit >= self.results.device_bytes:
            return
        if check is None:
            yield not_verified(limit)
            return
        figures = f"{number(check.samples_per_second)} samples/s, {memory(check.memory_bytes)}"
        cap = memory(check.budget_bytes)
        yield f"verified under a memory cap of {cap}: {figures} (trial {check.trial_id})"

    def _line(self, candidate: Offer) -> str:
        """``batch 32×8 · bf16: at least 257 samples/s, at most 22.9 GiB, trial e5600f3b6bb7``."""
        speed, size = figures(candidate)
        if not candidate.is_inferred:
            speed = f"{speed} {error(candidate.configuration.error95)}".rstrip()
        parts = [speed, size, f"trial {candidate.measured.trial_ids[0]}"]
        # The figure that the answer is best in comes first; every line has the speed.
        objective = self.recommendation.constraints.objective
        figure = self.recommendation.figure(candidate)
        if objective.name == "host_memory":
            parts.insert(0, f"{memory(figure)} of host memory")
        elif objective.name != "samples_per_second":
            interval = error(objective.error95(candidate.configuration))
            parts.insert(0, f"{number(figure)} {objective.unit} {interval}".rstrip())
        return f"{self.dataset.pick_label(candidate.configuration)}: {', '.join(parts)}"

    def _left_out(self) -> Iterator[str]:
        left_out, better = self.recommendation.left_out, self.recommendation.left_out_better
        if not left_out:
            return
        which = count(len(left_out), "configuration")
        if self.recommendation.best is not None:
            which = f"{which}, {better or 'none'} of them better,"
            if better == len(left_out):
                which = count(better, "better configuration")
        wrong = wrong_parts(own.configuration for own in left_out)
        yield f"left out: {which} whose {wrong} do not match the reference; the best of them:"
        yield f"  {self._line(left_out[0])}{short_notes(self.results, left_out[0])}"

    def _other_samples(self) -> Iterator[str]:
        if self.recommendation.other_samples:
            yield "with other samples, to be compared by --objective tokens_per_second only:"
        for candidate in self.recommendation.other_samples[:_SHOWN_SAMPLES]:
            recipe = recipe_label(candidate.configuration.training_recipe)
            tokens = candidate.configuration.real_tokens_per_second
            line = self._line(candidate)
            yield f"  {recipe}: {line}" + (f", {number(tokens)} tokens/s" if tokens else "")

    def _not_ranked(self) -> Iterator[str]:
        reasons, rest = self.recommendation.not_ranked, self.results.without_figures
        parts = [f"{number:,} {_REASONS[reason]}" for reason, number in reasons.items()]
        parts += [f"{rest:,} without a speed or a memory"] if rest else []
        if parts:
            yield f"not ranked: {'; '.join(parts)}"

    def _loosened(self, cost: Alternative) -> str:
        """What would be different: ``with 9.37 GiB instead of 8``."""
        constraints = self.recommendation.constraints
        size = memory(cost.candidate.memory_bytes)
        match cost.constraint:
            case "memory":
                unit = size.rpartition(" ")[2]
                limit = memory(constraints.memory_bytes).removesuffix(f" {unit}")
                return f"with {size} instead of {limit}"
            case "less memory":
                return f"with only {size}"
            case "effective_batch":
                batches = f"{cost.effective_batch} instead of {constraints.effective_batch}"
                return f"with an effective batch of {batches}"
        recipe = recipe_label(cost.candidate.configuration.training_recipe)
        return f"with another training recipe ({recipe})"

    def _gain(self, ratio: float | None) -> str:
        """``10 % less energy per sample``; empty if there is no best to compare with."""
        if ratio is None:
            return ""
        _, noun = _WORDS[self.recommendation.constraints.objective.name]
        # A doubling is easier to grasp as a factor, smaller gains as whole percent.
        if ratio >= 2:
            return f"{number(ratio)} times the {noun}"
        percent = round(100 * (ratio - 1))
        more = f"{abs(percent)} % {'more' if percent > 0 else 'less'}"
        return f"{more} {noun}" if percent else f"the same {noun}"


def gpu_count_lines(counts: Sequence[GpuCount], line_of: Callable[[Offer], str]) -> Iterator[str]:
    """How many GPUs: the best on each number, and how much of their speed is gained."""
    if not counts:
        return
    yield "by the number of GPUs:"
    for own in counts:
        parts = [line_of(own.best)]
        if own.gpus > 1:
            parts.append(f"{number(own.samples_per_second_per_gpu)} samples/s a GPU")
        if own.gpus > 1 and own.efficiency is not None:
            parts.append(f"scaling efficiency {own.efficiency:.0%}".replace("%", " %"))
        yield f"  {count(own.gpus, 'GPU')}: {', '.join(parts)}"


def figures(candidate: Offer) -> tuple[str, str]:
    """Speed and memory; if they are bounds and not measurements, the text says so."""
    least, most = ("at least ", "at most ") if candidate.is_inferred else ("", "")
    speed = f"{number(candidate.configuration.samples_per_second)} samples/s"
    return f"{least}{speed}", f"{most}{memory(candidate.memory_bytes)}"
