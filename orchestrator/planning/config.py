"""``load_config``: a YAML file, checked whole, as one frozen ``SweepConfig``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jobs.spec import DatasetFile, DataSpec, MeasureSpec, ModelSpec, SyntheticData
from jobs.techniques import AXES
from orchestrator.planning.arguments import architecture_names
from orchestrator.planning.axes import EFFECTIVE_BATCH, Assignment, AxisReader, Grid, lay
from orchestrator.planning.base_arguments import (
    DEFAULT,
    argument_problems,
    base_choices,
    deepspeed_problems,
)
from orchestrator.planning.document import Document, Part, part_of, read_document
from orchestrator.planning.problems import ConfigError, Problem, closest
from orchestrator.planning.schema_models import MeasureSection, SweepSection
from orchestrator.planning.settings import CpuSpec, FollowUpSpec, Resources, SearchSpec, SweepConfig
from orchestrator.planning.validation_errors import shape_of
from orchestrator.storage.location import location

__all__ = ["ConfigError", "SweepConfig", "load_config"]

MOST_TRIALS = 100_000
"""Beyond this a plan takes minutes to write down and weeks to run; before, seconds."""


def load_config(path: str | Path, *, trust_remote_code: bool = False) -> SweepConfig:
    """The configuration in a YAML file. Raises ConfigError with every problem found, not only the first.

    A file that asks for ``model.trust_remote_code`` is refused unless the caller, on behalf of whoever typed the
    command, allows it too: files are passed around, and this one would run a stranger's code.
    """
    document = read_document(Path(path))
    shape = shape_of(document.value)
    reader = AxisReader(document)
    points = _points(document, reader)
    base = _Base(document, reader.used)
    problems = [*reader.problems, *base.problems]
    if not isinstance(shape, SweepSection):
        raise ConfigError([*(document.problem(*found) for found in shape), *problems])
    problems += _model_problems(document, shape)
    if (planned := _planned(points, shape.measure.repeats)) > MOST_TRIALS:
        message = f"plans {planned:,} trials; more than {MOST_TRIALS:,} are a mistake, or need several sweeps"
        problems.append(document.problem(("axes",), message))
    if shape.model.trust_remote_code and not trust_remote_code:
        message = (
            "runs code that the checkpoint brings; who wants that says so on the command line too"
        )
        problems.append(
            document.problem(("model", "trust_remote_code"), f"{message}: --trust-remote-code")
        )
    if problems:
        raise ConfigError(problems)
    return _build(Path(path), shape, points, base)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Points:
    axes: Grid
    subsets: dict[str, Grid]
    exclude: tuple[Grid, ...]
    trials: tuple[Assignment, ...]
    baseline: Assignment


def _points(document: Document, reader: AxisReader) -> _Points:
    subsets, exclude, trials = (document.value.get(key) for key in ("subsets", "exclude", "trials"))
    return _Points(
        axes=reader.grid("axes"),
        subsets={name: reader.grid("subsets", name, "axes") for name in subsets}
        if isinstance(subsets, dict)
        else {},
        exclude=tuple(reader.grid("exclude", index) for index in range(_length(exclude))),
        trials=tuple(reader.assignment("trials", index) for index in range(_length(trials))),
        baseline=reader.assignment("baseline"),
    )


def _planned(points: _Points, repeats: int) -> int:
    """Trials of the grids before anything is excluded, and the lone ones."""
    grids = [lay(points.axes, subset) for subset in points.subsets.values()] or [dict(points.axes)]
    return repeats * (
        sum(math.prod(map(len, grid.values())) for grid in grids) + len(points.trials)
    )


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


class _Base:
    """The user's own arguments and DeepSpeed file, read, with what is wrong in them."""

    def __init__(self, document: Document, used: Collection[str]) -> None:
        self.problems: list[Problem] = []
        arguments = self._part(document, "training_arguments", argument_problems, used)
        self.training_arguments = arguments or {}
        self.deepspeed = self._part(document, "deepspeed", deepspeed_problems, used)

    def _part(
        self,
        document: Document,
        key: str,
        check: Callable[[Part, Collection[str]], Iterable[Problem]],
        used: Collection[str],
    ) -> dict[str, Any] | None:
        try:
            part = part_of(document, key)
        except ConfigError as error:
            self.problems += error.problems
            return None
        if part is None:
            return None
        self.problems += check(part, used)
        return part.value


def _model_problems(document: Document, shape: SweepSection) -> Iterator[Problem]:
    known = architecture_names()
    name = shape.model.architecture
    if name is not None and known is not None and name not in known:
        meant = closest(name, known)
        guess = f'did you mean "{meant}"?' if meant else "see transformers' list of model types"
        yield document.problem(
            ("model", "architecture"), f'transformers has no architecture "{name}"; {guess}'
        )
    file = shape.data.file
    if file is not None and file.format is None and _format(file.path) is None:
        formats = ", ".join(dict.fromkeys(_FORMATS.values()))
        yield document.problem(
            ("data", "file"), f"needs a format for {file.path}; valid choices: {formats}, disk"
        )


Format = Literal["parquet", "json", "csv", "arrow"]
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".arrow": "arrow",
}


def _format(path: str) -> Format | None:
    return _FORMATS.get(Path(path).suffix.lower())


def _measure(measure: MeasureSection) -> MeasureSpec:
    return MeasureSpec(
        warmup_steps=measure.warmup_steps,
        steps=measure.steps,
        relative_error=0.0 if measure.steps is None else measure.relative_error,
        timeout_seconds=measure.deadline,
        seed=measure.seed,
        inspect=measure.inspect,
        isolation=measure.isolation,
        anatomy=measure.anatomy == "all",
    )


def _follow_ups(measure: MeasureSection) -> FollowUpSpec:
    wanted = FollowUpSpec(verify=measure.verify, turns=measure.turns)
    return wanted if measure.anatomy == "frontier" else replace(wanted, anatomies=0)


def _build(path: Path, shape: SweepSection, points: _Points, base: _Base) -> SweepConfig:
    name = shape.name or path.stem
    measure, resources = shape.measure, shape.resources
    return SweepConfig(
        name=name,
        path=path,
        model=_model(shape, path.absolute().parent),
        data=_data(shape, path.absolute().parent),
        training_arguments=base.training_arguments,
        deepspeed=base.deepspeed,
        axes=points.axes,
        subsets=points.subsets,
        exclude=points.exclude,
        trials=points.trials,
        baseline=_baseline(points, base),
        measure=_measure(measure),
        follow_ups=_follow_ups(measure),
        repeats=measure.repeats,
        cpu=CpuSpec(
            warmup_steps=shape.cpu.warmup_steps,
            steps=shape.cpu.steps,
            time_budget_seconds=shape.cpu.time_budget,
        ),
        resources=Resources(
            cpus_per_trial=resources.cpus_per_trial,
            host_bytes=resources.host_memory,
            nvme_path=resources.nvme_path,
            gpu_models=tuple(resources.gpu_models),
            calibrate=resources.calibrate,
        ),
        budgets=tuple(shape.budgets),
        search=SearchSpec(kind=shape.search.kind, options=shape.search.options),
        trackers=shape.trackers,
        output=location(shape.output or f"runs/{name}"),
    )


def _model(shape: SweepSection, folder: Path) -> ModelSpec:
    given = shape.model.model_dump()
    return ModelSpec(**{**given, "name_or_path": _located(given["name_or_path"], folder)})


def _located(name: str | None, folder: Path) -> str | None:
    """A folder's path from wherever a trial may look for it; another name is a Hub's, and stays."""
    if name is None or not (name.startswith((".", "/")) or (folder / name).is_dir()):
        return name
    return os.path.abspath(folder / name)


def _data(shape: SweepSection, folder: Path) -> DataSpec:
    if shape.data.synthetic is not None:
        return DataSpec(synthetic=SyntheticData(**shape.data.synthetic.model_dump()))
    assert shape.data.file is not None
    given = shape.data.file.model_dump()
    # Trials run in other processes, on other nodes: their working folder is not this one.
    absolute = str(folder / given["path"])
    located = {"path": absolute, "tokenizer": _located(given["tokenizer"], folder)}
    return DataSpec(
        file=DatasetFile(**{**given, **located, "format": given["format"] or _format(absolute)})
    )


def _baseline(points: _Points, base: _Base) -> Assignment:
    """As the file says; else each axis's first value; else the user's own arguments; else the axis's default."""
    named: set[str] = set().union(*points.subsets.values(), *points.trials, *points.exclude)
    own = {
        name: base.training_arguments.get(name, DEFAULT)
        for name in sorted(named - {*AXES, EFFECTIVE_BATCH})
    }
    first = {axis: values[0] for axis, values in points.axes.items()}
    return lay(
        {**own, **base_choices(base.training_arguments, base.deepspeed)},
        lay(first, points.baseline),
    )
