"""Columns that are no tracker's: of a trial as a whole, what its loop, its process and its slot know of it."""

from __future__ import annotations

from jobs.record import Column

COLUMNS = (
    Column(
        name="oom_requested_bytes",
        type="int64",
        unit="B",
        doc="the allocation that ran out of memory",
    ),
    Column(
        name="setup_seconds",
        type="float64",
        unit="s",
        doc="from the trial's start to its training loop; a forked process has its CUDA context by then",
    ),
    Column(
        name="docs_time_seconds",
        type="float64",
        unit="s",
        doc="the guide's 'Time': train_runtime, warm-up included",
    ),
    Column(
        name="docs_samples_per_second",
        type="float64",
        unit="1/s",
        doc="the guide's 'Samples/second': all samples over the whole training time",
    ),
    Column(
        name="overhead_seconds",
        type="float64",
        unit="s",
        doc="what the slot spent on the trial beyond counted steps",
    ),
    Column(
        name="anatomy_seconds",
        type="float64",
        unit="s",
        doc="what taking the trial apart cost, after its steps",
    ),
    Column(
        name="anatomy_missing", type="string", doc="why a trial that was to be taken apart was not"
    ),
    Column(name="slot_parent_pid", type="int64", doc="process that made the trial's own process"),
    Column(
        name="isolation_fallback",
        type="string",
        doc="why the process could not be forked, where it was to be",
    ),
    Column(
        name="warnings",
        type="list<string>",
        doc="what to know before trusting the row's speed or its losses, in words",
    ),
    Column(name="node", type="string", doc="the machine that ran the trial"),
    Column(
        name="log_file",
        type="string",
        doc="what the trial printed, its last 16 kB: a file in the run folder",
    ),
    Column(name="cpus", type="int64", doc="CPU cores given to the trial, also its OMP threads"),
    Column(
        name="host_memory_bytes", type="int64", unit="B", doc="host memory reserved for the trial"
    ),
    Column(
        name="joules_per_sample",
        type="float64",
        unit="J",
        doc="energy the GPU drew for a sample, counted steps",
    ),
)
