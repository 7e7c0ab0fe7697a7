"""An explanation of two trials' difference as people read it: a line for every part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.analysis.explanation import CLOSE, Breakdown, Difference, Explanation, Side, Term
from orchestrator.analysis.loss_curves import LossCurves
from orchestrator.analysis.loss_parity import LossWindow
from orchestrator.labels import recipe_label
from orchestrator.reporting.flags import with_heading
from orchestrator.reporting.json_output import strict
from orchestrator.units import change, memory, number

SMALL = 0.02
"""A part is left out unless it changed by more than this share of the larger figure."""
MAX_LOSS_STEPS = 6
"""Of the table of losses, evenly spread."""

_FASTER = ("B is faster", "B is slower")
_SMALLER = ("B takes less memory", "B takes more memory")

Writer = Callable[[float], str]


def seconds(value: float) -> str:
    """Seconds in the unit that reads best: ``2.90 ms``, ``1.50 s``."""
    value = round(value, 9)
    sign, size = "−" if value < 0 else "", abs(value)
    return f"{sign}{number(size)} s" if size >= 1 else f"{sign}{number(1000 * size)} ms"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _joules(value: float) -> str:
    return f"{number(value)} J"


def _megahertz(value: float) -> str:
    return f"{number(value)} MHz"


RUNTIME_NAMES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "matmul_dtype": ("matrix multiplications in", str),
    "attention_kernel": ("attention kernel", str),
    "autocast": ("autocast", str),
    "tf32": ("TF32 allowed", str),
    "parameter_dtypes": ("parameters in", str),
    "optimizer_class": ("optimizer", str),
    "optimizer_implementation": ("optimizer implementation", str),
    "optimizer_state_dtypes": ("optimizer states in", str),
    "offload_optimizer_device": ("optimizer states on", str),
    "offload_parameter_device": ("parameters on", str),
    "zero_stage": ("ZeRO stage", str),
    "checkpointed_layers": ("modules recomputed", str),
    "compiled_graphs": ("compiled graphs", str),
    "compile_graph_breaks": ("graph breaks", str),
    "dataloader_workers": ("data loader workers", str),
    "allocator_retries": ("allocator retries", str),
    "MFU": ("MFU", _percent),
    "backward / forward": ("backward / forward", number),
    "host_bound_share": ("micro-batches after which the GPU was idle", _percent),
    "launch_bound_forward_share": ("time in launch-bound forward passes", _percent),
    "launch_bound_update_share": ("time in launch-bound updates", _percent),
    "joules_per_sample": ("energy per sample", _joules),
    "gpu_sm_clock_mhz": ("SM clock", _megahertz),
    "gpu_power_capped_share": ("time at the power limit", _percent),
    "first_step_seconds": ("first step", seconds),
}
"""Name of a runtime difference -> its words, and how its values are written."""


def render(explanation: Explanation) -> str:
    """Lines of text: the trials, their time and memory, what ran differently, losses, cautions."""
    return "\n".join(_lines(explanation))


def to_json(explanation: Explanation) -> dict[str, Any]:
    """The same as plain JSON values, seconds and bytes, with the text."""
    content: dict[str, Any] = strict(explanation)
    return {**content, "text": render(explanation)}


def _lines(explanation: Explanation) -> Iterator[str]:
    before, after = explanation.before, explanation.after
    yield f"A {before.trial_id}: {before.label}"
    yield f"B {after.trial_id}: {after.label}"
    yield ""
    yield f"Hardware: {explanation.hardware}."
    yield f"Speed: {_speeds(before, after)}. Memory: {_memories(explanation)}."
    choices = [_difference(difference) for difference in explanation.choices]
    yield f"Configuration differences (A -> B): {'; '.join(choices) or 'none'}."
    yield from _breakdown("Time per sample", _FASTER, explanation.seconds_per_sample)
    if explanation.module_seconds is not None:
        title = "Forward and backward pass per sample, by class of module"
        yield from _breakdown(title, _FASTER, explanation.module_seconds)
    yield from _breakdown("Memory at the peak", _SMALLER, explanation.memory_bytes, write=memory)
    yield from _runtime(explanation)
    if explanation.losses is not None:
        yield ""
        yield from loss_lines(explanation.losses)
    cautions = list(_cautions(explanation))
    if cautions:
        yield ""
        yield from (f"! {caution}" for caution in cautions)


def _speeds(before: Side, after: Side) -> str:
    """``100 -> 150 samples/s (+50 %)``."""
    own, other = before.samples_per_second, after.samples_per_second
    return f"{number(own)} -> {number(other)} samples/s ({change(other / own)})"


def _memories(explanation: Explanation) -> str:
    """``1.56 GiB -> 1.21 GiB (−22 %)``."""
    own, other = explanation.before.memory_bytes, explanation.after.memory_bytes
    return f"{memory(own)} -> {memory(other)} ({_ratio(explanation.memory_bytes)})"


def _breakdown(
    title: str, words: tuple[str, str], breakdown: Breakdown, write: Writer = seconds
) -> Iterator[str]:
    """A line for the figure and one for each part that changed; ``words``: for less, for more."""
    before, after = breakdown.before, breakdown.after
    is_profiled = breakdown.source == "anatomy"
    source = "both trials profiled" if is_profiled else "from the table: not both were profiled"
    figures = f"{write(before)} -> {write(after)}"
    yield ""
    if before and after and abs(after / before - 1) <= CLOSE:
        yield f"{title}: the same, {write(after)} ({source})."
    else:
        yield f"{title}: {words[after > before]}, {figures} ({_ratio(breakdown)}; {source})."
    for term in breakdown.terms:
        if abs(term.change) > SMALL * max(before, after):
            yield f"  {_term(term, breakdown, write)}"
    if not breakdown.terms:
        yield "  The table has no parts of this figure."


def _term(term: Term, breakdown: Breakdown, write: Writer) -> str:
    """``−21.0 ms tensor contractions: 23.1 ms -> 2.10 ms, 79 % of the difference``."""
    sign = "+" if term.change > 0 else "−"
    figures = f"{write(term.before)} -> {write(term.after)}"
    line = f"{sign}{write(abs(term.change))} {term.name}: {figures}"
    whole = breakdown.after - breakdown.before
    if abs(whole) <= CLOSE * max(breakdown.before, breakdown.after):
        return line
    share = term.change / whole
    return f"{line}, " + (f"{100 * share:.0f} % of the difference" if share > 0 else "against it")


def _ratio(breakdown: Breakdown) -> str:
    return change(breakdown.after / breakdown.before) if breakdown.before else "–"


def _runtime(explanation: Explanation) -> Iterator[str]:
    if explanation.runtime:
        yield ""
        yield "Runtime differences (A -> B):"
        yield from (f"  {_difference(difference)}" for difference in explanation.runtime)


def _difference(difference: Difference) -> str:
    """``matrix multiplications in float32 -> bfloat16``."""
    words, write = RUNTIME_NAMES.get(difference.name, (difference.name, str))
    before, after = (_written(value, write) for value in (difference.before, difference.after))
    return f"{words} {before} -> {after}"


def _written(value: Any, write: Callable[[Any], str]) -> str:
    return "none" if value in (None, "") else write(value)


def _cautions(explanation: Explanation) -> Iterator[str]:
    """What limits the comparison."""
    if explanation.recipes[0] != explanation.recipes[1]:
        recipes = " -> ".join(recipe_label(recipe) for recipe in explanation.recipes)
        yield f"different training recipes: {recipes}"
    for name, factor in zip("AB", explanation.slower_profiles, strict=True):
        if factor is not None:
            yield (
                f"{name}: the profiled step took {factor:.2f} times as long as a counted step; the "
                "parts are its shares"
            )
    for name, side in (("A", explanation.before), ("B", explanation.after)):
        yield from (f"{name}: {with_heading(flag)}" for flag in side.flags)


def loss_lines(curves: LossCurves) -> Iterator[str]:
    """A sentence, a table of a few steps, and a line for each window that was compared."""
    steps = len(curves.after)
    if curves.before == curves.after:
        yield f"Losses: equal in each of the {steps} steps that both trained."
        return
    furthest = curves.furthest_step
    difference = abs(curves.after[furthest] - curves.before[furthest])
    result = "B's losses match the reference, A" if curves.match else "loss mismatch"
    where = f"in step {furthest + 1} of {steps}"
    yield f"Losses: {result}. The largest difference is {difference:.4g}, {where}."
    yield from _loss_table(curves)
    yield from (f"  {_window(window)}" for window in curves.windows)
    if curves.windows[-1].end < steps:
        yield "  Later steps are not compared: after the first update, recipes train differently."


def _loss_table(curves: LossCurves) -> Iterator[str]:
    """The losses of a few steps, evenly spread."""
    last = len(curves.after) - 1
    shares = [place / (MAX_LOSS_STEPS - 1) for place in range(MAX_LOSS_STEPS)]
    steps = sorted({round(share * last) for share in shares})
    yield "  step " + "".join(f"{step + 1:>9}" for step in steps)
    for name, curve in (("A", curves.before), ("B", curves.after)):
        yield f"  {name:<5}" + "".join(f"{curve[step]:>9.4f}" for step in steps)


def _window(window: LossWindow) -> str:
    """Mean losses of both; the bound, too, where losses could exceed it."""
    is_one = window.end == window.begin + 1
    steps = f"step {window.end}" if is_one else f"steps {window.begin + 1} to {window.end}"
    means = f"mean loss {window.reference:.4g} -> {window.own:.4g}"
    line = f"{steps}: {means}, a difference of {_percent(window.difference)}"
    if window.allowed >= 1:
        return f"{line}; too few steps to set a bound"
    return f"{line}; up to {_percent(window.allowed)} is a match"
