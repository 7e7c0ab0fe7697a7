"""How points are written as the cells of a table, the same for text, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.analysis import hf_guide
from orchestrator.analysis.budgets import Verdict
from orchestrator.analysis.effects import Effect, Stage
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.summary import Cohort, Summary
from orchestrator.analysis.tie_breaks import Pairing
from orchestrator.units import count, duration, error, memory, number

CAPPED, INFERRED, WHOLE = "samples/s under the cap", "inferred", "no cap needed"
OTHER, HOST_BOUND, DOUBTED = "†", "h", "≠"
MIB = 2**20


def cost(summary: Summary) -> str:
    """What a run cost its slots, its search and its follow-ups apart: ``5 min 20 s of slot time``."""
    spent = f"{duration(summary.busy_seconds)} of slot time"
    if not summary.follow_ups:
        return spent
    again = count(len(summary.follow_ups), "follow-up")
    return f"{spent} (and {duration(summary.follow_up_seconds)} more for {again})"


def speed(point: Point, cohort: Cohort) -> str:
    """Samples per second behind its marks: ``† h 34.5``."""
    marks = [OTHER] * (point.training != cohort.training) + [HOST_BOUND] * point.host_bound
    marks += [DOUBTED] * bool(point.trains_differently)
    return " ".join([*marks, number(point.samples_per_second)])


def frontier_rows(summary: Summary, cohort: Cohort) -> list[list[str]]:
    """Memory, speed, its uncertainty and the configuration of each point on the frontier, after a row of headings."""
    rows = [
        [memory(p.memory_bytes), speed(p, cohort), _error(p), summary.label(p)]
        for p in cohort.front
    ]
    return without_empty([["memory", "samples/s", "±", "configuration"], *rows])


def configuration_first(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """The table with its last column, the configuration, in front."""
    return [[row[-1], *row[:-1]] for row in rows]


def budget_rows(summary: Summary, cohort: Cohort) -> list[list[str]]:
    """Budget, speed, its uncertainty, memory, speed under a cap and configuration of each verdict, after headings.

    Where another training is faster, a row without a budget follows with what it would buy.
    """
    rows = [["budget", "samples/s", "±", "memory", CAPPED, "fastest that fits"]]
    for verdict in cohort.verdicts:
        name = memory(verdict.budget_bytes)
        if verdict.best is None:
            rows.append([name, "–", "", "–", "", "nothing measured fits"])
        for point in filter(None, (verdict.best, verdict.other)):
            first = name if point is verdict.best else ""
            figures = [
                speed(point, cohort),
                _error(point),
                memory(point.memory_bytes),
                _under_cap(verdict, point, cohort),
            ]
            rows.append([first, *figures, summary.label(point)])
    return without_empty(rows)


def _under_cap(verdict: Verdict, point: Point, cohort: Cohort) -> str:
    """The speed at which a pick was seen to fit; nothing where no verdict of the run was looked at again."""
    if not verdict.checks:
        return ""
    check = verdict.seen(point)
    if verdict.budget_bytes >= cohort.device_bytes:
        return WHOLE
    return INFERRED if check is None else number(check.samples_per_second)


def _error(point: Point) -> str:
    return error(point.samples_per_second_ci95)


def without_empty(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The table without the columns that say nothing below their heading."""
    kept = [any(column[1:]) or len(column) == 1 for column in zip(*rows, strict=True)]
    return [[cell for cell, keep in zip(row, kept, strict=True) if keep] for row in rows]


def frontier_notes(cohort: Cohort) -> list[str]:
    """What the marks of the frontier's table mean, a line each."""
    return list(_notes(cohort, cohort.front))


def budget_notes(summary: Summary, cohort: Cohort) -> list[str]:
    """What the marks of the budgets' table mean, and what was seen of the budgets, a line each."""
    marks = _notes(cohort, cohort.picks)
    compared = (
        _in_turns(summary, verdict, pairing)
        for verdict in cohort.verdicts
        for pairing in verdict.pairings
    )
    return [*marks, *dict.fromkeys(compared), *_evidence(summary, cohort)]


def _in_turns(summary: Summary, verdict: Verdict, pairing: Pairing) -> str:
    named = {
        trial_id: summary.label(point) for point in verdict.close for trial_id in point.trial_ids
    }
    return pairing.in_words(named)


def _evidence(summary: Summary, cohort: Cohort) -> Iterator[str]:
    if not cohort.checks:
        if cohort.memory_column == "device_peak_bytes":
            yield "That these fit is inferred from their peaks on the whole device."
        return
    yield (
        f"{CAPPED[0].upper()}{CAPPED[1:]}: run again, the allocator kept to what context and libraries leave of the "
        f"budget, and seen to fit at this speed; {INFERRED}: from its peak on the whole device."
    )
    for verdict in cohort.verdicts:
        for point in verdict.failed:
            yield (
                f"{memory(verdict.budget_bytes)}: {summary.label(point)} took {memory(point.memory_bytes)} of the "
                "whole device and failed under the cap."
            )
    for check in cohort.checks:
        if not (check.fits or check.fails):
            yield f"{memory(check.budget_bytes)}: the trial under the cap settles nothing: {check.outcome.value}."


def _notes(cohort: Cohort, points: Iterable[Point]) -> Iterator[str]:
    shown = list(points)
    others = list(dict.fromkeys(p.training for p in shown if p.training != cohort.training))
    if others:
        yield f"{OTHER} trains differently: {'; '.join(cohort.training_name(kind) for kind in others)}"
    if any(point.host_bound for point in shown):
        yield f"{HOST_BOUND} host-bound: the accelerator waited for the host, whose speed this is"
    if any(point.trains_differently for point in shown):
        yield f"{DOUBTED} its losses are not its reference's"


def scope(cohort: Cohort) -> str:
    """Within which training the frontier is drawn, in a sentence; empty when there is only one."""
    if not cohort.trains_as_baseline:
        return f"Nothing that trains as the baseline ended ok; this is within {cohort.training_name(cohort.training)}."
    others = len(cohort.fronts) - 1
    kinds = "1 other kind" if others == 1 else f"{others} other kinds"
    return f"Trains as the baseline, any batch; {kinds} of training apart." if others else ""


def alike(effect: Effect) -> str:
    """Whether the technique leaves the training as it was, in a word or two."""
    return (
        "same"
        if effect.same_training
        else "other batch"
        if effect.axis == "micro_batch"
        else "differs"
    )


def stage_name(stage: Stage, cohort: Cohort) -> str:
    """What a stage added, marked when it changes the training."""
    return f"{stage.added} {OTHER}" if stage.point.training != cohort.training else stage.added


def guide_table(summary: Summary, cohort: Cohort) -> list[list[str]]:
    """The guide's table and ours, after a row of headings: time, speed and NVML its way, then the steady state."""
    its_way = ["time, s", "samples/s", "NVML, MiB"]
    ours = ["steady samples/s", "peak allocated, MiB", "peak reserved, MiB", "device used, MiB"]
    theirs = [f"guide ({hf_guide.GPU}): {name}" for name in ("time, s", "samples/s", "NVML, MB")]
    headings = ["configuration", *its_way, *ours, *theirs]
    rows = []
    for entry in cohort.guide:
        row, told = entry.point.row, entry.published
        mib = [
            _mib(row.get(name))
            for name in ("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_bytes")
        ]
        own = [number(row.get("hf_guide_seconds")), number(row.get("hf_guide_samples_per_second"))]
        published = (
            [f"{told.seconds:.2f}", f"{told.samples_per_second:.2f}", f"{told.memory_mb:,}"]
            if told
            else [""] * 3
        )
        used = row.get("hf_guide_memory_mib")
        own += ["" if used is None else f"{used:,}", speed(entry.point, cohort)]
        rows.append([summary.label(entry.point), *own, *mib, *published])
    return without_empty([headings, *rows]) if rows else []


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:,.0f}"


def guide_notes(cohort: Cohort) -> list[str]:
    """What stands in the guide's table, in sentences."""
    lines = [
        "Time, samples/s and NVML are taken as the guide takes them: over one epoch with the warm-up, and what NVML "
        "has in use after training, which is no peak. The columns after them are the steady state and true peaks."
    ]
    if any(entry.published for entry in cohort.guide):
        lines.append(
            f"Guide: what {hf_guide.SOURCE} published for a {hf_guide.GPU} with 16 GB, where the bare CUDA context took "
            f"{hf_guide.CONTEXT_MB:,} MB and the model beside it {hf_guide.WEIGHTS_MB:,} MB."
        )
    return [*lines, *_notes(cohort, [entry.point for entry in cohort.guide])]
