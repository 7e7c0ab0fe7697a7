"""Every byte of a step has a name, at the peak and over time."""

from __future__ import annotations

from dataclasses import replace

from jobs.anatomy.memory.timeline import SAMPLES, step_memory
from jobs.anatomy.trace import Trace
from tests.support.traces import GRADIENT, INPUT, KNOWN, PHASES, STEP


def test_step_memory_at_the_peak_names_every_byte() -> None:
    memory = step_memory(STEP, KNOWN)
    assert memory.at_peak == {
        "weights": 100,
        "optimizer states": 200,
        "other": 7,
        "inputs": 8,
        "autocast copies of weights": 50,
        "saved activations": 320,
        "recomputed activations": 60,
        "gradients": 100,
    }
    assert memory.peak_bytes == sum(memory.at_peak.values())
    assert memory.peak_by_name["temporary buffers"] == 40
    assert memory.saved_by_operator == {"aten::addmm": 300, "": 20}


def test_step_memory_names_blocks_from_before_the_trace() -> None:
    late = replace(STEP, memory_events=STEP.memory_events[9:])
    before = {**KNOWN.before, GRADIENT: 100, INPUT: 8}
    memory = step_memory(late, replace(KNOWN, before=before))
    assert memory.at_peak["gradients"] == 100
    assert memory.at_peak["inputs"] == 8


def test_step_memory_knows_deepspeeds_buckets_by_their_size() -> None:
    memory = step_memory(STEP, replace(KNOWN, bucket_sizes={300}))
    assert memory.at_peak["ZeRO buffers"] == 300


def test_timeline_keeps_the_highest_moment_of_each_stretch() -> None:
    memory = step_memory(STEP, KNOWN)
    timeline = memory.timeline
    totals = [sum(moment) for moment in zip(*timeline.held.values(), strict=True)]
    assert max(totals) == memory.peak_bytes
    assert len(timeline.seconds) == len(totals) <= SAMPLES
    assert [name for name, _ in timeline.phases] == [phase.name for phase in PHASES]


def test_step_memory_of_an_empty_trace_is_what_was_there_before() -> None:
    memory = step_memory(Trace(), KNOWN)
    assert memory.at_peak == {"weights": 100, "optimizer states": 200}
    assert memory.timeline.seconds == [0.0]
