"""Two trials' losses as people read them: a small table of steps, and what the guard says of each half."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.analysis.loss_curves import LossCurves

MOST_STEPS = 6
"""Of the table, evenly spread."""


def lines(curves: LossCurves) -> Iterator[str]:
    """A sentence, the table, and a line for each half; of equal curves the sentence."""
    steps, furthest = len(curves.after), curves.furthest
    if curves.before == curves.after:
        yield f"Losses: the same in each of the {steps} steps that both trained."
        return
    difference = abs(curves.after[furthest] - curves.before[furthest])
    verdict = "as the guard allows" if curves.agree else "further apart than the guard allows"
    yield (
        f"Losses: at most {difference:.4g} apart, in step {furthest + 1} of the {steps} that both trained; on average "
        f"{verdict}."
    )
    chosen = sorted({round(place * (steps - 1) / (MOST_STEPS - 1)) for place in range(MOST_STEPS)})
    yield "  step " + "".join(f"{step + 1:>9}" for step in chosen)
    for name, curve in (("A", curves.before), ("B", curves.after)):
        yield f"  {name:<5}" + "".join(f"{curve[step]:>9.4f}" for step in chosen)
    for half in curves.halves:
        named = (
            f"step {half.end}"
            if half.end == half.begin + 1
            else f"steps {half.begin + 1} to {half.end}"
        )
        yield (
            f"  {named}: {half.own:.4g} instead of {half.reference:.4g} on average, {_percent(half.apart)} apart; "
            f"allowed are {_percent(half.allowed)}"
        )
    if curves.halves[-1].end < steps:
        yield "  Later steps are not compared: after the first update, unlike trainings go their own ways."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
