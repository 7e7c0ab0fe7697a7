"""Synthetic trial records, for tests of what is made of records."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.anatomy_record import Anatomy, Entry, Timeline
from jobs.flags import Flag, FlagKind, flag_columns
from jobs.record import SCHEMA_VERSION, Column, Outcome, Provenance, TrialRecord, with_provenance
from jobs.spec import (
    Choice,
    DataSpec,
    FollowUp,
    LibrarySettings,
    ModelSpec,
    Purpose,
    SyntheticData,
    TrainingRecipe,
    TrialSpec,
    to_json,
)
from orchestrator.units import MIB

H200 = {
    "gpu_model": "NVIDIA H200",
    "cpu_model": "synthetic",
    "torch": "2.13.0",
    "transformers": "5.23.0",
}

GPU_BOUND: Mapping[str, float] = {
    "host_bound_share": 0.0,
    "launch_bound_forward_share": 0.0,
    "launch_bound_update_share": 0.0,
    "samples_per_second_ci95": 0.001,
}
"""Measurements of a trial whose pace the GPU sets, and whose steps are steady."""

COLUMNS: tuple[Column, ...] = (
    Column("peak_allocated_bytes", "int64", "Largest sum of live tensors.", unit="bytes"),
    Column("peak_reserved_bytes", "int64", "Largest sum the allocator held.", unit="bytes"),
    Column("device_peak_bytes", "int64", "Peak of the device's used memory.", unit="bytes"),
    Column("samples_per_second", "float64", "Over the counted steps.", unit="samples/s"),
    Column("samples_per_second_ci95", "float64", "Relative uncertainty of the speed."),
    Column("step_seconds_median", "float64", "Median counted step.", unit="s"),
    Column("warmup_steps", "int64", "Steps that did not count."),
    Column("optimizer_class", "string", "The optimizer that ran."),
    Column("flags", "list<string>", "What to know before trusting the row."),
    Column("flag_values", "list<double>", "The figure of each flag."),
)


def make_record(
    *,
    micro_batch: int = 4,
    accumulation: int = 1,
    memory_mib: float = 1000,
    speed: float = 100.0,
    outcome: Outcome = Outcome.OK,
    reason: str = "",
    rule: str = "",
    repeat: int = 0,
    recipe: Mapping[str, Choice] | None = None,
    flags: Sequence[Flag] = (),
    environment: Mapping[str, Any] | None = None,
    anatomy: Anatomy | None = None,
    gpu: bool = True,
    started_at: float = 1_700_000_000.0,
    measurements: Mapping[str, Any] | None = None,
    **choices: Any,
) -> TrialRecord:
    """A record whose figures are what the caller says; without ``outcome=OK`` it has no
    measurements.
    """
    spec = TrialSpec(
        choices={"micro_batch": micro_batch, "accumulation": accumulation, **choices},
        model=ModelSpec(task="masked-lm", architecture="bert"),
        data=DataSpec(synthetic=SyntheticData()),
        settings=LibrarySettings(
            training_arguments={
                "per_device_train_batch_size": micro_batch,
                "gradient_accumulation_steps": accumulation,
                **{f"synthetic_{axis}": value for axis, value in choices.items()},
            }
        ),
        repeat=repeat,
        training_recipe=TrainingRecipe.of(recipe or {}),
    )
    size = round(memory_mib * MIB)
    figures = {
        "peak_allocated_bytes": size,
        "peak_reserved_bytes": size + 64 * MIB,
        "device_peak_bytes": size + 600 * MIB if gpu else None,
        "samples_per_second": speed,
        "step_seconds_median": spec.effective_batch / speed,
        "warmup_steps": 1,
        "optimizer_class": "SyntheticAdam",
        **flag_columns(flags),
    }
    ok = outcome is Outcome.OK
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        reason=reason,
        rule=rule,
        phase="" if ok else "first_step",
        measurements={**figures, **(measurements or {})} if ok else (measurements or {}),
        steps={"step_seconds": [0.5, 0.1, 0.1], "loss": [3.0, 2.0, 1.0]} if ok else {},
        anatomy=anatomy,
        environment=environment if environment is not None else H200,
        provenance=Provenance(
            started_at=0.0 if outcome is Outcome.SKIPPED else started_at,
            slot_seconds=3.0,
            isolation="fork",
        ),
    )


def make_anatomy(scale: float = 1.0) -> Anatomy:
    """An anatomy with an entry of every part.

    ``scale`` stretches its activations and its contractions.
    """
    saved = 600.0 * MIB * scale
    weights = 400.0 * MIB

    def entry(part: str, name: str, value: float, unit: str, **more: Any) -> Entry:
        return Entry(part=part, name=name, value=value, unit=unit, **more)

    return Anatomy(
        entries=(
            entry("memory", "saved activations", saved, "B", kind="saved activations"),
            entry("memory", "weights", weights, "B", kind="weights"),
            entry("memory", "cached by the allocator", 64.0 * MIB, "B"),
            entry("memory", "CUDA context", 536.0 * MIB, "B"),
            entry("memory", "residual", 0.0, "B"),
            entry("activations", "addmm", saved, "B"),
            entry("host memory", "optimizer states", 8.0 * MIB, "B", kind="optimizer states"),
            entry("operations", "tensor contractions", 0.024 * scale, "s"),
            entry("operations", "statistical normalizations", 0.010, "s"),
            entry("operations", "element-wise operators", 0.006, "s"),
            entry("operations", "idle", 0.001, "s"),
            entry("kernels", "addmm", 0.02 * scale, "s"),
            entry("modules", "BertIntermediate", 0.024 * scale, "s"),
            entry("modules", "LayerNorm", 0.012, "s"),
            entry("step", "forward", 0.01, "s"),
            entry("step", "backward", 0.03 * scale, "s"),
            entry("phases", "backward / forward", 3.0, ""),
            entry("efficiency", "MFU", 0.35, "", rule="model flop / (seconds of a step × peak)"),
        ),
        timeline=Timeline(
            seconds=[0.0, 0.01, 0.02],
            held={"weights": [400 * MIB] * 3, "saved activations": [0, round(saved), 0]},
            phases=[("forward", 0.0), ("backward", 0.012)],
        ),
    )


def make_grid(repeats: int = 1) -> list[TrialRecord]:
    """A synthetic sweep of 9 batches × 4 precisions × 2 activations × 4 optimizers (288
    configurations).

    AdamW trains as the baseline, the other optimizers do not.
    """
    speeds = {"fp32": 44.0, "tf32": 132.0, "fp16": 312.0, "bf16": 345.0}
    states = {
        "adamw_torch_fused": (2600, 1.0),
        "adafactor": (60, 0.55),
        "adamw_bnb_8bit": (900, 0.7),
        "sgd": (50, 1.0),
    }
    records = []
    batches = [2**power for power in range(9)]
    grid = itertools.product(batches, speeds, ("keep", "checkpoint"), states, range(repeats))
    for place, (batch, precision, activations, optimizer, repeat) in enumerate(grid):
        state, factor = states[optimizer]
        less, slow = (6, 0.75) if activations == "checkpoint" else (1, 1.0)
        memory = 3800 + state + (720 if precision in ("fp32", "tf32") else 516) / less * batch
        speed = speeds[precision] * slow * batch / (batch + 4 + 6 * (1 - factor))
        figures: dict[str, Any] = {}
        if memory >= 140_000:
            reason = f"CUDA out of memory. Tried to allocate {batch / 16:.2f} GiB."
            figures = {"outcome": Outcome.OUT_OF_MEMORY, "reason": reason}
        record = make_record(
            micro_batch=batch,
            memory_mib=memory,
            speed=speed * (1 + 0.001 * repeat),
            repeat=repeat,
            recipe={} if optimizer == "adamw_torch_fused" else {"optimizer": optimizer},
            started_at=1_700_000_000.0 + 3 * place,
            precision=precision,
            activations=activations,
            optimizer=optimizer,
            **figures,
        )
        records.append(record)
    return records


def write_run(folder: Path, records: list[TrialRecord], **run: Any) -> Path:
    """A run folder as the running wing leaves it."""
    (folder / "records").mkdir(parents=True, exist_ok=True)
    for place, record in enumerate(records):
        path = folder / "records" / f"{record.trial_id}.json"
        if path.exists():
            path = path.with_stem(f"{record.trial_id}-{place}")
        path.write_text(json.dumps(to_json(record)))
    about = {"name": "synthetic", "config": {}, "command": "synthetic"}
    metadata = {**about, "schema_version": SCHEMA_VERSION, **run}
    (folder / "run.json").write_text(json.dumps(metadata))
    return folder


GUIDE_CONFIG: dict[str, Any] = {
    "model": {"architecture": "bert", "config": {"hidden_size": 1024, "num_hidden_layers": 24}},
    "data": {"synthetic": {"sequence_length": 512, "samples": 512}},
    "measure": {"steps": None},
    "cpu_fallback": {"steps": 3},
}
"""The parts of a run's config by which the guide's own experiment is known."""


def make_guide() -> list[TrialRecord]:
    """The guides' rows, one epoch each, with invented figures; the small batches are host-bound."""
    split = {"micro_batch": 1, "accumulation": 4}
    lean = {**split, "activations": "checkpoint", "precision": "fp16"}
    eight = {"optimizer": "adam8bit_decay_groups"}
    rows: list[tuple[float, float, dict[str, Any]]] = [
        (7200, 34.0, {}),
        (5900, 15.0, split),
        (5400, 12.0, {**split, "activations": "checkpoint"}),
        (6600, 76.0, {"precision": "fp16"}),
        (5500, 13.0, lean),
        (4600, 25.0, {"optimizer": "adafactor"}),
        (3000, 9.0, {**lean, "optimizer": "adafactor"}),
        (5300, 36.0, {"optimizer": "adamw_bnb_8bit"}),
        (5300, 35.0, eight),
        (3700, 10.0, {**lean, "optimizer": "adamw_bnb_8bit"}),
        (3700, 10.5, {**lean, **eight}),
        (3700, 14.0, {**lean, **eight, "loop": "accelerate"}),
    ]
    plain = {"precision": "fp32", "activations": "keep", "loop": "trainer"}
    optimizer = "adamw_torch_fused"
    records = []
    for place, (memory, speed, choices) in enumerate(rows):
        own = {"micro_batch": 4, "accumulation": 1, **plain, "optimizer": optimizer, **choices}
        docs = {
            "hf_guide_seconds": 600 / speed,
            "hf_guide_samples_per_second": 512 * speed / 600,
            "hf_guide_memory_mib": 9751,
            "samples_per_second_ci95": 0.004 + 0.01 * place,
        }
        record = make_record(
            memory_mib=memory,
            speed=speed,
            started_at=1_700_000_000.0 + 30 * place,
            recipe={"optimizer": own["optimizer"]} if own["optimizer"] != optimizer else {},
            flags=[Flag(FlagKind.HOST_BOUND, 0.9)] if own["micro_batch"] == 1 else [],
            measurements=docs,
            **own,
        )
        records.append(record)
    return records


def steady(record: TrialRecord, **factors: float) -> TrialRecord:
    """The record with a speed that the GPU sets, a narrow interval, and figures multiplied."""
    measured: dict[str, Any] = {**record.measurements, **GPU_BOUND}
    for name, factor in factors.items():
        measured[name] = type(measured[name])(measured[name] * factor)
    return replace(record, measurements=measured)


def with_losses(record: TrialRecord, losses: Sequence[float]) -> TrialRecord:
    """The record with these losses, a tenth of a second a step."""
    return replace(record, steps={"loss": list(losses), "step_seconds": [0.1] * len(losses)})


def follow_up_of(
    record: TrialRecord, purpose: Purpose, measure: Mapping[str, Any] | None = None, **fields: Any
) -> TrialRecord:
    """The record of a follow-up of the record's trial."""
    follow_up = FollowUp(follows_trial=record.trial_id, purpose=purpose)
    changed = replace(record.spec.measure, **(measure or {}))
    return replace(
        record, spec=replace(record.spec, follow_up=follow_up, measure=changed), **fields
    )


def profile_of(record: TrialRecord, scale: float) -> TrialRecord:
    """The follow-up that profiles the record's trial, with an anatomy of this scale."""
    return follow_up_of(record, Purpose.PROFILE, {"profile": True}, anatomy=make_anatomy(scale))


def ended(
    spec: TrialSpec,
    outcome: Outcome = Outcome.OK,
    *,
    environment: Mapping[str, Any] | None = None,
    started_at: float = 1.0,
    seconds: float = 1.0,
    **fields: Any,
) -> TrialRecord:
    """The record of this very trial, without figures of its own."""
    record = TrialRecord(spec=spec, outcome=outcome, environment=environment or {}, **fields)
    return with_provenance(record, started_at=started_at, slot_seconds=seconds)
