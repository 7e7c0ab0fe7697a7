"""A batch-size answer as lines of text; what was not measured is marked as predicted."""

import math
import textwrap
from collections.abc import Iterator

from jobs.record import Outcome
from orchestrator import units
from orchestrator.analysis.batch_size_answer import BatchMeasurement, BatchSizeResult
from orchestrator.labels import batch_label
from orchestrator.reporting.flags import with_heading
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.reporting.verbs.recommendation import figures


def describe(answer: BatchSizeResult, hardware: str) -> str:
    """Lines under 120 columns: a heading, a table of the answers, notes."""
    limit = "no GPU: memory is what tensors hold, without a limit"
    if answer.device_bytes is not None and answer.margin_bytes is not None:
        margin = units.memory(answer.margin_bytes) if answer.margin_bytes else "nothing"
        limit = f"{units.memory(answer.device_bytes)}, {margin} kept free"
    lines = [f"{answer.techniques} on {hardware} ({limit})", *_table(answer)]
    for note in _notes(answer):
        lines.append(textwrap.fill(note, 118, initial_indent="  ", subsequent_indent="    "))
    return visible("\n".join(lines))


def _table(answer: BatchSizeResult) -> Iterator[str]:
    largest, fastest, saturation = answer.largest, answer.fastest, answer.saturation
    if largest is None or fastest is None or saturation is None:
        return
    yield f"  {'':<22}{'batch':>10}{'samples/s':>20}{'memory':>12}"
    yield _line("largest that fits", largest, _why_largest(answer, largest))
    yield _line("fastest", fastest, "")
    why = "; ".join(_why_saturation(answer, saturation, fastest))
    yield _line(f"saturation, {answer.tolerance:.0%}", saturation, why)
    if answer.accumulated is not None:
        # Within the tolerance the reader asked for, speeds count as equal.
        slower = 1 - answer.accumulated.speed / fastest.speed
        why = f"{slower:.1%} slower than the fastest micro-batch"
        why = why if slower > answer.tolerance else ""
        yield _line(f"effective batch {answer.effective_batch}", answer.accumulated, why)


def _why_saturation(
    answer: BatchSizeResult, saturation: BatchMeasurement, fastest: BatchMeasurement
) -> Iterator[str]:
    if saturation.memory_bytes and fastest.memory_bytes and saturation is not fastest:
        yield f"{saturation.memory_bytes / fastest.memory_bytes:.0%} of the fastest's memory"
    below = answer.below_saturation
    if below is not None:
        yield f"{below.micro_batch} is {1 - below.speed / fastest.speed:.1%} slower"


def _line(name: str, size: BatchMeasurement, why: str) -> str:
    memory = units.memory(size.memory_bytes)
    speed = f"{units.number(size.samples_per_second)} {units.error(size.error95)}".rstrip()
    return f"  {name:<22}{_batch(size):>10}{speed:>20}{memory:>12}  {why}".rstrip()


def _batch(size: BatchMeasurement) -> str:
    choices = {"micro_batch": size.micro_batch, "accumulation": size.accumulation}
    return batch_label(choices, ("micro_batch",)).removeprefix("batch ")


def _why_largest(answer: BatchSizeResult, largest: BatchMeasurement) -> str:
    if largest.micro_batch >= answer.max_micro_batch:
        return "the largest that was asked for"
    plain = [each for each in answer.sizes if each.accumulation == 1]
    size = next((each for each in plain if each.micro_batch > largest.micro_batch), None)
    if size is not None:
        is_within = size.micro_batch - largest.micro_batch <= answer.granularity
        if is_within or size.outcome is Outcome.TIMED_OUT:
            return f"{size.micro_batch}: {_refusal(size)}"
    if answer.unfinished or answer.next_bytes is None:
        return "not known to be the largest"
    predicted = f"one more: {units.memory(answer.next_bytes)} predicted"
    return f"{predicted}, to within {answer.granularity}" if answer.granularity > 1 else predicted


def _refusal(size: BatchMeasurement) -> str:
    if size.outcome is Outcome.OK:
        return f"{units.memory(size.memory_bytes)}, inside the margin"
    return size.outcome.value.replace("_", " ")


def _notes(answer: BatchSizeResult) -> Iterator[str]:
    if answer.largest is None:
        nothing = "nothing fits, not even a micro-batch of 1"
        yield "no size is known to fit" if answer.unfinished else nothing
    elif answer.effective_batch is not None and answer.accumulated is None:
        wanted = answer.effective_batch
        yield f"effective batch {wanted}: no micro-batch that divides it is known to fit"
    yield from _other_sizes(answer)
    if answer.unfinished:
        yield f"unfinished: {answer.unfinished}"
    yield from _between_speeds(answer)
    results = []
    for size in answer.sizes:
        result = f"{units.number(size.speed)}/s" if size.fits else _refusal(size)
        results.append(f"{_batch(size)} ({result})")
    if results:
        spent = units.duration(answer.slot_seconds)
        trials = units.count(len(results), "trial")
        yield f"{trials}, {spent} of slot time: {', '.join(results)}"


def _other_sizes(answer: BatchSizeResult) -> Iterator[str]:
    # Those that cannot be an answer, because they train something else.
    for size in answer.left_out:
        reasons = ", ".join(map(with_heading, size.flags))
        yield f"left out: {_batch(size)} ({units.number(size.speed)} samples/s): {reasons}"
    for nearby in answer.nearby:
        # effective batch 256 instead of 250: 32×8, at least 300 samples/s in at most 22.9 GiB
        own, batches = nearby.candidate, f"{nearby.effective_batch} instead of"
        batch = f"{own.micro_batch}×{own.accumulation}, {' in '.join(figures(own))}"
        yield f"effective batch {batches} {answer.effective_batch}: {batch}"


def _between_speeds(answer: BatchSizeResult) -> Iterator[str]:
    """Which speeds differ although they look close, and which cannot be distinguished."""
    if answer.alignment is not None:
        odd, aligned = answer.alignment
        faster = f"{aligned.speed / odd.speed - 1:.1%} faster than {odd.micro_batch}"
        yield f"multiples of 8 matter here: {aligned.micro_batch} was {faster}"
    fastest = answer.fastest
    if fastest is None or answer.tolerance >= fastest.error95:
        return
    if math.isfinite(fastest.error95):
        yield f"speeds are known to {units.error(fastest.error95)}: closer sizes cannot be ranked"
    else:
        yield "speeds come from a single step: close sizes cannot be ranked"
