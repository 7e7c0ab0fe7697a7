"""Columns of the trial as a whole, which no single tracker measures."""

from __future__ import annotations

from jobs.record import Column

COLUMNS = (
    Column(
        "oom_requested_bytes",
        "int64",
        "Size of the allocation that ran out of memory",
        unit="B",
    ),
    Column(
        "setup_seconds",
        "float64",
        "Time from the trial's start to its training loop; a forked process has its CUDA context "
        "before that",
        unit="s",
    ),
    Column(
        "image_tokens_per_sample",
        "float64",
        "Tokens of a sample that images take the place of, on average; null for data without "
        "images in texts",
    ),
    Column(
        "hf_guide_seconds",
        "float64",
        "The Hugging Face guide's 'Time': wall time of the whole training, warm-up included",
        unit="s",
    ),
    Column(
        "hf_guide_samples_per_second",
        "float64",
        "The Hugging Face guide's 'Samples/second': all samples over the whole training time",
        unit="1/s",
    ),
    Column(
        "anatomy_seconds",
        "float64",
        "Time that profiling took after the counted steps",
        unit="s",
    ),
    Column("anatomy_missing", "string", "Why a trial that should have been profiled was not"),
    Column(
        "flags",
        "list<string>",
        "Facts to know before trusting the row; the kinds are listed below",
    ),
    Column(
        "flag_values",
        "list<double>",
        "The figure of each flag, whose meaning depends on the kind; null where it has none",
    ),
    Column(
        "joules_per_sample",
        "float64",
        "Energy that the GPU drew per sample during the counted steps",
        unit="J",
    ),
    Column(
        "peak_evaluate_allocated_bytes",
        "int64",
        "Most bytes that tensors held at once during an evaluation on the longest rows; null "
        "unless measure.evaluate_and_save",
        unit="B",
    ),
    Column(
        "peak_evaluate_reserved_bytes",
        "int64",
        "Most bytes that the caching allocator held during an evaluation on the longest rows; null "
        "unless measure.evaluate_and_save",
        unit="B",
    ),
    Column("evaluate_seconds", "float64", "Time of an evaluation on the longest rows", unit="s"),
    Column(
        "peak_save_allocated_bytes",
        "int64",
        "Most bytes that tensors held at once during saving a checkpoint; null "
        "unless measure.evaluate_and_save",
        unit="B",
    ),
    Column(
        "peak_save_reserved_bytes",
        "int64",
        "Most bytes that the caching allocator held during saving a checkpoint; null "
        "unless measure.evaluate_and_save",
        unit="B",
    ),
    Column("save_seconds", "float64", "Time of saving a checkpoint", unit="s"),
)
