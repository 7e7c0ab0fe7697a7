"""A recommendation as people read it, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.objectives import HOUR, OBJECTIVES
from orchestrator.analysis.recommendation import Cost, Recommendation
from orchestrator.analysis.summary import MEMORY_WORDS
from orchestrator.api import MeasuredRun
from orchestrator.units import change, count, duration, memory, number

_JOULES_PER_KWH = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The user's own training: how much of it there is."""

    samples: int
    epochs: float = 1.0

    def seconds(self, candidate: Candidate) -> float:
        """Seconds of training steps; start-up, evaluation and saving come on top."""
        return self.samples * self.epochs / candidate.point.samples_per_second

    def price(self, candidate: Candidate, price_per_hour: float | None) -> float | None:
        """What those seconds cost; None without a price."""
        return None if price_per_hour is None else self.seconds(candidate) / HOUR * price_per_hour

    def kilowatt_hours(self, candidate: Candidate) -> float | None:
        """The GPU's energy for them; None where it was not measured."""
        joules = OBJECTIVES["joules_per_sample"].of(candidate.point, None)
        return None if joules is None else joules * self.samples * self.epochs / _JOULES_PER_KWH


def render(run: MeasuredRun, answer: Recommendation, workload: Workload | None = None) -> str:
    """Lines of text: the answer, what speaks against it, the next ones, and the price of each constraint."""
    return "\n".join(_lines(run, answer, workload))


def _lines(run: MeasuredRun, answer: Recommendation, workload: Workload | None) -> Iterator[str]:
    yield f"{run.run.name or run.folder.name} on {run.hardware}{_asked(answer)}"
    yield f"  memory is {MEMORY_WORDS[run.memory_column]}"
    if others := {*run.points.environments.met()} - {run.environment_id}:
        yield f"  (of the run's {len(others) + 1} environments the one with most rows: they are never ranked together)"
    if answer.best is None:
        yield "  nothing that was measured keeps these constraints"
    else:
        yield f"  {_line(run, answer, answer.best)}"
        evidence = (*_evidence(run, answer), *_in_turns(run, answer))
        yield from (f"    {note}" for note in (*evidence, *notes(run, answer.best)))
        if workload is not None:
            yield f"  {_training(answer, answer.best, workload)}"
    if answer.runners_up:
        yield "next best, with other techniques:"
        yield from (f"  {_line(run, answer, c)}{_short_notes(run, c)}" for c in answer.runners_up)
    if answer.costs:
        yield "what the constraints cost:"
        yield from (f"  {_cost(run, answer, cost)}" for cost in answer.costs)
    if answer.doubted:
        refused = count(answer.doubted, "configuration")
        yield f"refused: {refused} whose losses are not their reference's (without --exact they count)"


def _evidence(run: MeasuredRun, answer: Recommendation) -> Iterator[str]:
    """Whether that it fits was seen in the run, or follows from a peak; nothing where no memory was asked for."""
    limit, check = answer.wish.memory_bytes, answer.seen
    if limit is None or limit >= run.device_bytes:
        return
    if check is None:
        yield f"that it fits is inferred from its peak: no trial of the run saw it under a cap of {memory(limit)}"
        return
    figures = f"{number(check.samples_per_second)} samples/s, {memory(check.memory_bytes)}"
    yield f"seen to fit: {figures} under a cap of {memory(check.budget_bytes)} in trial {check.trial_id}"


def _in_turns(run: MeasuredRun, answer: Recommendation) -> Iterator[str]:
    """What came of the best beside those that the search could not tell from it, once each."""
    if not answer.in_turns:
        return
    named = {trial_id: run.label(point) for point in run.own() for trial_id in point.trial_ids}
    yield from dict.fromkeys(pairing.in_words(named) for pairing in answer.in_turns)


def _asked(answer: Recommendation) -> str:
    wish = answer.wish
    parts = (
        []
        if wish.effective_batch is None
        else [f" for an effective batch of {wish.effective_batch}"]
    )
    parts += [] if wish.memory_bytes is None else [f" within {memory(wish.memory_bytes)}"]
    parts += [", losses as they should be"] if wish.exact else []
    parts += [", any training"] if wish.any_training else []
    return "".join(parts) + f": best in {wish.objective.name}"


def _line(run: MeasuredRun, answer: Recommendation, candidate: Candidate) -> str:
    least, most = (" at least", " at most") if candidate.inferred else ("", "")
    figures = [
        f"{number(candidate.point.samples_per_second)} samples/s{least}",
        memory(candidate.point.memory_bytes) + most,
    ]
    figure = answer.figure(candidate)
    if answer.wish.objective.name != "samples_per_second" and figure is not None:
        figures.insert(0, f"{number(figure)} {answer.wish.objective.words}")
    return f"{run.label(candidate.point)}: {', '.join(figures)}"


def notes(run: MeasuredRun, candidate: Candidate) -> list[str]:
    """What to know before training with a candidate, a sentence each."""
    point = candidate.point
    different = [f"another training than the baseline's: {point.training or 'exact'}"] * (
        point.training != run.training
    )
    return [*([candidate.how] if candidate.how else []), *different, *point.warnings]


def _short_notes(run: MeasuredRun, candidate: Candidate) -> str:
    kinds = [note.partition(":")[0].partition(" from ")[0] for note in notes(run, candidate)]
    return f" ({'; '.join(dict.fromkeys(kinds))})" if kinds else ""


def _cost(run: MeasuredRun, answer: Recommendation, cost: Cost) -> str:
    point, wish = cost.candidate.point, answer.wish
    gain = "would do" if cost.ratio is None else f"{change(cost.ratio)} {wish.objective.words}"
    what = run.label(point)
    if cost.constraint == "memory":
        more = f"{memory(wish.memory_bytes)}: {memory(point.memory_bytes - (wish.memory_bytes or 0))} more"
        return f"{more} ({memory(point.memory_bytes)}) {'would buy ' * (cost.ratio is not None)}{gain}: {what}"
    if cost.constraint == "less memory":
        return f"{memory(point.memory_bytes)} would nearly do ({gain}): {what}"
    freed = {
        "effective_batch": f"effective batch {wish.effective_batch}: {point.row['effective_batch']} instead",
        "exact": "losses as they should be: without that",
        "training": f"training as the baseline does: {point.training or 'plain training'}",
    }[cost.constraint]
    return f"{freed} {'would buy ' * (cost.ratio is not None)}{gain}: {what}"


def _training(answer: Recommendation, candidate: Candidate, workload: Workload) -> str:
    parts = [duration(workload.seconds(candidate))]
    price, energy = (
        workload.price(candidate, answer.wish.price_per_hour),
        workload.kilowatt_hours(candidate),
    )
    parts += [] if price is None else [f"costing {number(price)}"]
    parts += [] if energy is None else [f"{number(energy)} kWh of the GPU"]
    epochs = "" if workload.epochs == 1 else f" × {workload.epochs:g} epochs"
    return f"{workload.samples:,} samples{epochs}: {', '.join(parts)} (start-up, evaluation and saving come on top)"


def to_json(
    run: MeasuredRun, answer: Recommendation, workload: Workload | None = None
) -> dict[str, object]:
    """The same as plain JSON values: bytes, seconds, and the objective's own unit."""
    wish = answer.wish

    def entry(candidate: Candidate) -> dict[str, Any]:
        training = (
            {}
            if workload is None
            else {
                "seconds": workload.seconds(candidate),
                "price": workload.price(candidate, wish.price_per_hour),
                "kilowatt_hours": workload.kilowatt_hours(candidate),
            }
        )
        return {
            "label": run.label(candidate.point),
            "trial_id": candidate.measured.trial_ids[0],
            "choices": dict(candidate.point.choices),
            "accumulation": candidate.accumulation,
            "inferred": candidate.inferred,
            "memory_bytes": candidate.point.memory_bytes,
            "samples_per_second": candidate.point.samples_per_second,
            wish.objective.name: answer.figure(candidate),
            "notes": notes(run, candidate),
            **({"training": training} if training else {}),
        }

    return {
        "run": run.run.name or run.folder.name,
        "hardware": run.hardware,
        "memory_column": run.memory_column,
        "best": None if answer.best is None else entry(answer.best),
        "runners_up": [entry(candidate) for candidate in answer.runners_up],
        "costs": [
            {"constraint": c.constraint, "ratio": c.ratio, **entry(c.candidate)}
            for c in answer.costs
        ],
        "doubted": answer.doubted,
        "seen_to_fit": None if answer.seen is None else dataclasses.asdict(answer.seen),
        "in_turns": [dataclasses.asdict(pairing) for pairing in answer.in_turns],
    }
