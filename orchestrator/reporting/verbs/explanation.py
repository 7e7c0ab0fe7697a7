"""An explanation of two trials' difference as people read it: a line for every part of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.analysis.explanation.result import Breakdown, Difference, Explanation, LossCurves
from orchestrator.analysis.loss_parity.windows import CheckState, LossWindow
from orchestrator.analysis.repeatability import CLOSE
from orchestrator.labels import recipe_label
from orchestrator.reporting.flags import with_heading
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import change, memory, number

Writer = Callable[[float], str]


def seconds(value: float) -> str:
    """Seconds in the unit that reads best: ``2.90 ms``, ``1.50 s``."""
    # What a subtraction leaves of zero has no sign.
    value = round(value, 9)
    size = abs(value)
    text = f"{number(size)} s" if size >= 1 else f"{number(1000 * size)} ms"
    return f"−{text}" if value < 0 else text


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


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
    "launch_bound_backward_share": ("time in launch-bound backward passes", _percent),
    "launch_bound_update_share": ("time in launch-bound updates", _percent),
    "joules_per_sample": ("energy per sample", lambda value: f"{number(value)} J"),
    "gpu_sm_clock_mhz": ("SM clock", lambda value: f"{number(value)} MHz"),
    "gpu_power_capped_share": ("time at the power limit", _percent),
    "first_step_seconds": ("first step", seconds),
}
"""Name of a runtime difference -> its words, and how its values are written."""


_LOSS_RESULTS: Mapping[CheckState, str] = {
    CheckState.MATCHES: "B's losses match the reference, A",
    CheckState.MISMATCH: "loss mismatch",
    CheckState.NOT_CHECKED: "not checked",
}
"""What the comparison of the two losses says."""


def render(explanation: Explanation) -> str:
    """Lines of text: the trials, their time and memory, what ran differently, losses, cautions."""
    runtime = [f"  {_difference(difference)}" for difference in explanation.runtime]
    blocks = [
        _figures(explanation),
        *map(list, _breakdowns(explanation)),
        ["Runtime differences (A -> B):", *runtime] if runtime else [],
        list(loss_lines(explanation.losses)) if explanation.losses is not None else [],
        [f"! {caution}" for caution in _cautions(explanation)],
    ]
    return visible("\n\n".join("\n".join(block) for block in blocks if block))


def to_json(explanation: Explanation) -> dict[str, Any]:
    """The same as plain JSON values, seconds and bytes, with the text."""
    content: dict[str, Any] = strict(explanation)
    return {**content, "text": render(explanation)}


def _figures(explanation: Explanation) -> list[str]:
    before, after = explanation.before, explanation.after
    faster = change(after.samples_per_second / before.samples_per_second)
    speeds = f"{number(before.samples_per_second)} -> {number(after.samples_per_second)} samples/s"
    sizes = f"{memory(before.memory_bytes)} -> {memory(after.memory_bytes)}"
    choices = "; ".join(map(_difference, explanation.choices))
    return [
        f"A {before.trial_id}: {before.label}",
        f"B {after.trial_id}: {after.label}",
        "",
        f"Hardware: {explanation.hardware}.",
        f"Speed: {speeds} ({faster}). Memory: {sizes} ({_ratio(explanation.memory_bytes)}).",
        f"Configuration differences (A -> B): {choices or 'none'}.",
    ]


def _breakdowns(explanation: Explanation) -> Iterator[Iterator[str]]:
    faster = ("B is faster", "B is slower")
    yield _breakdown("Time per sample", faster, explanation.seconds_per_sample)
    if explanation.module_seconds is not None:
        title = "Forward and backward pass per sample, by class of module"
        yield _breakdown(title, faster, explanation.module_seconds)
    smaller = ("B takes less memory", "B takes more memory")
    yield _breakdown("Memory at the peak", smaller, explanation.memory_bytes, write=memory)


def _breakdown(
    title: str, words: tuple[str, str], breakdown: Breakdown, write: Writer = seconds
) -> Iterator[str]:
    """``words``: for less, for more."""
    is_profiled = breakdown.source == "anatomy"
    source = "both trials profiled" if is_profiled else "from the table: not both were profiled"
    before, after = breakdown.before, breakdown.after
    changed = f"{words[after > before]}, {write(before)} -> {write(after)}"
    text = f"{changed} ({_ratio(breakdown)}; {source})"
    # Figures within CLOSE of each other are the same for any decision.
    if before and after and abs(after / before - 1) <= CLOSE:
        text = f"the same, {write(after)} ({source})"
    yield f"{title}: {text}."
    # Parts that changed by 2 % or less would hide those that explain the difference.
    for term in breakdown.terms:
        if abs(term.change) > 0.02 * max(before, after):
            yield f"  {_term(term, breakdown, write)}"
    if not breakdown.terms:
        yield "  The table has no parts of this figure."


def _term(term: Difference, breakdown: Breakdown, write: Writer) -> str:
    """``−21.0 ms tensor contractions: 23.1 ms -> 2.10 ms, 79 % of the difference``."""
    sign = "+" if term.change > 0 else "−"
    figures = f"{write(term.before)} -> {write(term.after)}"
    line = f"{sign}{write(abs(term.change))} {term.name}: {figures}"
    whole = breakdown.after - breakdown.before
    if abs(whole) <= CLOSE * max(breakdown.before, breakdown.after):
        return line
    share = term.change / whole
    return f"{line}, {100 * share:.0f} % of the difference" if share > 0 else f"{line}, against it"


def _ratio(breakdown: Breakdown) -> str:
    return change(breakdown.after / breakdown.before) if breakdown.before else "–"


def _difference(difference: Difference) -> str:
    """``matrix multiplications in float32 -> bfloat16``."""
    words, write = RUNTIME_NAMES.get(difference.name, (difference.name, str))
    sides = (difference.before, difference.after)
    before, after = ("none" if value in (None, "") else write(value) for value in sides)
    return f"{words} {before} -> {after}"


def _cautions(explanation: Explanation) -> Iterator[str]:
    if explanation.recipes[0] != explanation.recipes[1]:
        recipes = " -> ".join(map(recipe_label, explanation.recipes))
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
    result = _LOSS_RESULTS[curves.state]
    where = f"in step {furthest + 1} of {steps}"
    yield f"Losses: {result}. The largest difference is {difference:.4g}, {where}."
    # Six steps, evenly spread and rounded to whole ones; a short curve has fewer.
    shown = sorted({round(index * (steps - 1) / 5) for index in range(6)})
    yield "  step " + "".join(f"{step + 1:>9}" for step in shown)
    for name, curve in (("A", curves.before), ("B", curves.after)):
        yield f"  {name:<5}" + "".join(f"{curve[step]:>9.4f}" for step in shown)
    for window in curves.windows:
        yield f"  {_window(window)}"
    if curves.windows[-1].end < steps:
        yield "  Later steps are not compared: after the first update, recipes train differently."


def _window(window: LossWindow) -> str:
    steps = f"steps {window.begin + 1} to {window.end}"
    if window.end == window.begin + 1:
        steps = f"step {window.end}"
    means = f"mean loss {window.reference:.4g} -> {window.own:.4g}"
    line = f"{steps}: {means}, a difference of {_percent(window.difference)}"
    if not window.matches:
        return f"{line}; up to {_percent(window.allowed)} could be chance"
    if not window.has_power:
        return f"{line}; not checked: up to {_percent(window.bound)} could be chance"
    return f"{line}; a change by {_percent(window.bound)} would be seen"
