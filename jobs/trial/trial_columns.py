"""Columns of the trial as a whole, which no single tracker measures, and the figures in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs import gradient_check, rank_records, steady_state
from jobs.flags import Flag, FlagKind, flag_columns
from jobs.gradient_check import scaling_flag
from jobs.record import Column
from jobs.spec import TrialSpec
from jobs.trial.weight_formats import unquantized_flag

if TYPE_CHECKING:
    from jobs.loops.contract import Trained


def _upkeep_columns(name: str, action: str) -> tuple[Column, ...]:
    unless = f"during {action}; null unless measure.evaluate_and_save asks for it"
    return (
        Column.nbytes(
            f"peak_{name}_allocated_bytes", f"Most bytes that tensors held at once {unless}"
        ),
        Column.nbytes(
            f"peak_{name}_reserved_bytes", f"Most bytes that the caching allocator held {unless}"
        ),
        Column.nbytes(f"peak_{name}_host_bytes", f"Most resident memory of the process {unless}"),
        Column.seconds(f"{name}_seconds", f"Time of {action}"),
    )


COLUMNS = (
    Column.nbytes(
        "epoch_growth_bytes",
        "Memory of the GPU that an epoch of rows of unequal length is forecast to take beyond "
        "this trial's steps, below zero if it takes less; part of the memory that budgets compare",
    ),
    Column.nbytes("oom_requested_bytes", "Size of the allocation that ran out of memory"),
    Column.seconds(
        "setup_seconds",
        "Time until the training loop; a forked process already has its CUDA context",
    ),
    Column.number(
        "image_tokens_per_sample",
        "Mean tokens of a sample that are images; null for data without images in texts",
    ),
    Column.seconds(
        "hf_guide_seconds", "The Hugging Face guide's 'Time': the whole training, warm-up included"
    ),
    Column(
        "hf_guide_samples_per_second",
        "float64",
        "The Hugging Face guide's 'Samples/second': all samples over the whole training time",
        unit="1/s",
    ),
    Column.seconds("anatomy_seconds", "Time that profiling took after the counted steps"),
    Column.text("anatomy_missing", "Why a trial that should have been profiled was not"),
    Column("flags", "list<string>", "Facts to know before trusting the row; the kinds are below"),
    Column("flag_values", "list<double>", "The figure of each flag; null where it has none"),
    Column("joules_per_sample", "float64", "Energy that the GPU drew per counted sample", unit="J"),
    *_upkeep_columns("evaluate", "an evaluation on the longest rows"),
    *_upkeep_columns("save", "saving a checkpoint"),
    *_upkeep_columns("load_best", "loading a checkpoint's weights at the end of a training"),
    *_upkeep_columns("resume", "continuing from a checkpoint, with the first step after it"),
    *_upkeep_columns("merge", "merging an adapter into its base"),
    *gradient_check.COLUMNS,
    *rank_records.COLUMNS,
)


def derived(values: Mapping[str, Any], spec: TrialSpec, device_type: str) -> dict[str, Any]:
    """What follows from several trackers together."""
    figures: dict[str, Any] = flag_columns(_flags(values, spec, device_type))
    if "energy_joules" in values:
        # Energy and speed are both of the counted steps.
        samples = values["samples_per_second"] * values["counted_seconds"]
        figures["joules_per_sample"] = values["energy_joules"] / samples
    if "device_peak_bytes" in values and "peak_reserved_bytes" in values:
        # The GPU is polled, so it misses what is reserved for less than that interval.
        least = values["gpu_context_bytes"] + values["peak_reserved_bytes"]
        figures["device_peak_bytes"] = max(values["device_peak_bytes"], least)
    if "persistent_bytes" in values and "cpu_step_peak_bytes" in values:
        # Without a CUDA allocator the peak is what persists plus what one step adds.
        figures["peak_allocated_bytes"] = values["persistent_bytes"] + values["cpu_step_peak_bytes"]
    return figures


def _flags(values: Mapping[str, Any], spec: TrialSpec, device_type: str) -> list[Flag]:
    flags = steady_state.flags(
        half_width=values["samples_per_second_ci95"],
        relative_error=steady_state.wanted_error(spec.measure.relative_error, device_type),
        host_bound_share=values.get("host_bound_share"),
        launch_bound_share=steady_state.launch_bound_share(values),
        data_wait_share=steady_state.data_wait_share(values),
        allocator_retries=values.get("allocator_retries", 0),
        new_shapes_share=values.get("new_shapes_share", 0.0),
    )
    left_out = values.get("rows_left_out_share")
    others = (
        scaling_flag(values.get("accumulation_loss_ratio"), spec.accumulation),
        unquantized_flag(values.get("base_quantized_share")),
        Flag(FlagKind.ROWS_LEFT_OUT, left_out) if left_out else None,
    )
    return [*flags, *(flag for flag in others if flag is not None)]


def like_the_hf_guide(trained: Trained, values: Mapping[str, Any]) -> dict[str, Any]:
    """The Hugging Face guide's "Time" and "Samples/second", without the time of inspection."""
    # Inspecting operators is this program's own work, which the guide's trainings do not have.
    seconds = trained.train_seconds - values.get("inspection_seconds", 0.0)
    samples = trained.samples_per_second * trained.train_seconds
    return {"hf_guide_seconds": seconds, "hf_guide_samples_per_second": samples / seconds}
