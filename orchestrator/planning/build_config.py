"""A checked file as a ``SweepConfig``: paths made absolute, defaults filled in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jobs.spec import (
    Choice,
    DatasetFile,
    DataSpec,
    MeasureSpec,
    ModelSpec,
    OwnCode,
    RowLengthDistribution,
    SyntheticData,
)
from jobs.techniques import AXES
from orchestrator.planning.axes import (
    EFFECTIVE_BATCH,
    SEQUENCE_LENGTH,
    Assignment,
    Grids,
    overlay,
)
from orchestrator.planning.base_arguments import DEFAULT, BaseArguments, base_choices
from orchestrator.planning.schema_models import (
    CpuFallbackSection,
    FileSection,
    FollowUpSection,
    ResourcesSection,
    SweepSection,
    SyntheticSection,
)
from orchestrator.planning.search_choice import search_of
from orchestrator.planning.settings import CpuFallback, FollowUpPolicy, Resources, SweepConfig
from orchestrator.storage.location import location

FileFormat = Literal["parquet", "json", "csv", "arrow", "disk", "imagefolder"]
FORMAT_OF_SUFFIX: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".arrow": "arrow",
}


def build_config(
    path: Path,
    section: SweepSection,
    grids: Grids,
    base: BaseArguments,
    notes: Sequence[str],
    *,
    own_code: OwnCode | None = None,
) -> SweepConfig:
    """The configuration of a file without problems."""
    # Paths in the file are relative to it, not to where the command runs.
    name = section.name or path.stem.strip(".") or "sweep"
    folder = path.absolute().parent
    return SweepConfig(
        name=name,
        path=path,
        model=_model(section, folder),
        data=_data(section, folder),
        training_arguments=base.training_arguments,
        deepspeed=base.deepspeed,
        axes=grids.axes,
        subsets=grids.subsets,
        exclude=grids.exclude,
        trials=grids.trials,
        baseline=_baseline(grids, base, _data(section, folder)),
        measure=_measure(section),
        repeats=section.measure.repeats,
        follow_up=_follow_up(section.follow_up),
        cpu_fallback=_cpu_fallback(section.cpu_fallback),
        resources=_resources(section.resources),
        budgets=tuple(section.budgets),
        search=search_of(section.search),
        loggers=section.loggers,
        output=location(section.output or f"runs/{name}"),
        own_code=own_code,
        notes=tuple(notes),
    )


def format_of(file: FileSection) -> FileFormat | None:
    """A dataset's format as given, else from its suffix; None if the suffix is unknown."""
    return file.format or FORMAT_OF_SUFFIX.get(Path(file.path).suffix.lower())


def _model(section: SweepSection, folder: Path) -> ModelSpec:
    # The spec's fields have the names of the file's keys.
    fields = section.model.model_dump()
    fields["name_or_path"] = _located(section.model.name_or_path, folder)
    return ModelSpec(**fields)


def _located(name: str | None, folder: Path) -> str | None:
    """The absolute path of a folder beside the config; the name of a checkpoint on the Hub as is.

    Trials run in other processes and on other nodes, in other working folders.
    """
    # A name with one slash can be a folder or a repository; the folder wins if it exists.
    if name is None or not (name.startswith((".", "/")) or (folder / name).is_dir()):
        return name
    return os.path.abspath(folder / name)


def _data(section: SweepSection, folder: Path) -> DataSpec:
    if section.data.synthetic is not None:
        return DataSpec(synthetic=_synthetic(section.data.synthetic))
    # Earlier checks have refused a section without exactly one source, or without a known format.
    file = section.data.file
    assert file is not None
    file_format = format_of(file)
    assert file_format is not None
    return DataSpec(
        file=DatasetFile(
            path=str(folder / file.path),
            format=file_format,
            columns=file.columns,
            tokenizer=_located(_tokenizer(section), folder),
            max_length=file.max_length,
        )
    )


def _tokenizer(section: SweepSection) -> str | None:
    """What makes tokens of the file: for images with texts it is the checkpoint's own processor."""
    file = section.data.file
    assert file is not None
    if file.tokenizer is None and section.model.task == "image-text-to-text":
        return section.model.name_or_path
    return file.tokenizer


def _synthetic(section: SyntheticSection) -> SyntheticData:
    # The specs' fields have the names of the file's keys.
    fields = section.model_dump()
    if section.lengths is not None:
        fields["lengths"] = RowLengthDistribution(**section.lengths.model_dump())
    return SyntheticData(**fields)


def _measure(section: SweepSection) -> MeasureSpec:
    measure = section.measure
    relative_error = measure.relative_error
    if measure.steps is None:
        relative_error = 0.0  # a whole epoch is never cut short
    return MeasureSpec(
        warmup_steps=measure.warmup_steps,
        steps=measure.steps,
        relative_error=relative_error,
        timeout_seconds=measure.timeout,
        seed=measure.seed,
        inspect=measure.inspect,
        isolation=measure.isolation,
        evaluate_and_save=measure.evaluate_and_save,
        profile=section.follow_up.profile == "all",
    )


def _follow_up(section: FollowUpSection) -> FollowUpPolicy:
    # "all" needs no follow-up: every trial of the search profiles itself.
    profiles = 0
    if section.profile == "frontier":
        profiles = FollowUpPolicy().profiles
    return FollowUpPolicy(
        verify_budgets=section.verify_budgets,
        tie_break_rounds=section.tie_break_rounds,
        profiles=profiles,
    )


def _cpu_fallback(section: CpuFallbackSection) -> CpuFallback:
    return CpuFallback(
        warmup_steps=section.warmup_steps,
        steps=section.steps,
        time_budget_seconds=section.time_budget,
    )


def _resources(section: ResourcesSection) -> Resources:
    return Resources(
        cpus_per_trial=section.cpus_per_trial,
        host_bytes=section.host_memory,
        nvme_path=section.nvme_path,
        gpu_models=tuple(section.gpu_models),
        screen_gpus=section.screen_gpus,
    )


def _baseline(grids: Grids, base: BaseArguments, data: DataSpec) -> Assignment:
    """Every axis with a value.

    As the file says; else each axis's first value; else the user's own arguments; else the axis's
    default.
    """
    # A training argument that only subsets, trials or exclusions name keeps its value from outside
    # the sweep in all other trials.
    named: set[str] = set().union(*grids.subsets.values(), *grids.trials, *grids.exclude)
    choices: dict[str, Choice] = {}
    for argument in sorted(named - {*AXES, EFFECTIVE_BATCH}):
        choices[argument] = base.training_arguments.get(argument, DEFAULT)
    # Technique axes, then what the sweep's own axes and baseline lay over them.
    choices |= base_choices(base.training_arguments, base.deepspeed)
    if SEQUENCE_LENGTH in {*grids.axes, *named} and data.synthetic is not None:
        # Lengths that are numbers can be compared. What a file has is known only when it is read.
        choices[SEQUENCE_LENGTH] = data.synthetic.sequence_length
    first_values = {axis: values[0] for axis, values in grids.axes.items()}
    return overlay(choices, overlay(first_values, grids.baseline))
