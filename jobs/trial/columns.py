"""Columns of a trial as a whole, which no tracker measures."""

from __future__ import annotations

from jobs.record import Column

COLUMNS = (
    Column("oom_requested_bytes", "int64", "the allocation that ran out of memory", unit="B"),
    Column(
        "setup_seconds",
        "float64",
        "from the trial's start to its training loop; a forked process already has its CUDA context",
        unit="s",
    ),
    Column(
        "hf_guide_seconds",
        "float64",
        "the Hugging Face guide's 'Time': train_runtime, warm-up included",
        unit="s",
    ),
    Column(
        "hf_guide_samples_per_second",
        "float64",
        "the Hugging Face guide's 'Samples/second': all samples over the whole training time",
        unit="1/s",
    ),
    Column("anatomy_seconds", "float64", "time that profiling took, after the steps", unit="s"),
    Column("anatomy_missing", "string", "why a trial that should have been profiled was not"),
    Column(
        "flags",
        "list<string>",
        "what to know before trusting the row; the kinds are listed below",
    ),
    Column(
        "flag_values", "list<double>", "the figure of each flag; its meaning depends on the kind"
    ),
    Column(
        "joules_per_sample", "float64", "energy the GPU drew per sample, counted steps", unit="J"
    ),
)
