"""The gain over the default configuration: computed, and honest where there is none."""

from collections.abc import Iterator, Sequence
from typing import Any

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.dataset import dataset_of_records
from orchestrator.reporting.sections import headline
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.units import GIB
from tests.support.golden import assert_golden
from tests.support.records import GPU_BOUND, make_record


def at(precision: str, memory_mib: int, speed: float, size: int = 4, **more: Any) -> TrialRecord:
    return make_record(
        precision=precision, memory_mib=memory_mib, speed=speed, micro_batch=size, **more
    )


def runs() -> Iterator[tuple[str, list[TrialRecord], Sequence[int]]]:
    """What is to be seen, the records and the budgets in GiB; the default is fp32."""
    default, small = at("fp32", 8000, 100.0), at("fp32", 900, 9.0, 1)
    for words, memory, speed in (
        ("faster in half the memory", 4000, 500.0),
        ("faster in the same memory", 8000, 1234.0),
        ("a little faster in less memory", 2000, 120.0),
        ("faster in more memory", 16000, 200.0),
        ("as fast in less memory", 2000, 102.0),
    ):
        yield words, [default, at("bf16", memory, speed), small], [20]
    for words, half_width in (("known too vaguely", 0.5), ("known", 0.001), ("of no error", None)):
        own = {**GPU_BOUND, "samples_per_second_ci95": half_width}
        yield (
            f"a gain that is {words}",
            [
                at(name, 1000, speed, measurements=own)
                for name, speed in (("fp32", 1.0), ("bf16", 1.3))
            ],
            [],
        )
    three = [default, at("bf16", 2000, 50.0), at("bf16", 9000, 900.0, 8)]
    yield "the default is the fastest in the smallest budget that it fits", three, [3, 9, 40]
    yield "another is the fastest in that budget", three, [3, 40]
    yield "budgets that the default does not fit, one that nothing fits", three, [1, 3]
    larger = [default, at("bf16", 2000, 500.0)]
    yield "budgets that the default does not fit, and a faster one does", larger, [3]
    yield "no budgets", three, []
    other_batch = [at("fp32", 8000, 100.0, 1), at("bf16", 8000, 500.0, 6), at("bf16", 7000, 100, 1)]
    yield "the default was measured at another batch", other_batch, []
    yield "the default is the fastest", [default, at("bf16", 9000, 50.0)], []
    sgd = at("fp32", 1000, 300.0, recipe={"optimizer": "sgd"})
    yield "another recipe is faster", [default, sgd], []


def test_headlines_are_the_recorded_text():
    lines = []
    for words, records, budgets in runs():
        run = RunMetadata(budgets=tuple(size * GIB for size in budgets))
        (sentence,) = headline.make(dataset_of_records(records, run)).text
        lines += [f"{words}:", f"  {sentence}"]
    assert_golden("headlines.txt", "\n".join(lines))


def test_headline_is_absent_without_results():
    failed = make_record(outcome=Outcome.FAILED, reason="no")
    assert headline.make(dataset_of_records([failed], RunMetadata())) is None
