"""The file's keys and their types, in pydantic: checked here, and the source of the JSON schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from jobs.spec import Isolation, Task
from orchestrator.planning.loggers import TRACKERS, read_trackers
from orchestrator.planning.settings import AnatomyOf
from orchestrator.storage.location import location
from orchestrator.units import DURATION, SIZE, duration_seconds, size_bytes


def _steps(value: object) -> int | None:
    if value == "epoch":
        return None
    return _at_least_one(value, 'an integer from 1, or "epoch"')


def _cpus(value: object) -> int:
    return 0 if value == "auto" else _at_least_one(value, 'an integer from 1, or "auto"')


def _host_memory(value: object) -> int:
    return 0 if value == "auto" else size_bytes(value)


def _at_least_one(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be {what}")
    return value


def _mapping_or_path(value: object) -> object:
    if not isinstance(value, (dict, str)):
        raise ValueError("must be a mapping, or the path of a JSON or YAML file")
    return value


def _output(value: str | None) -> str | None:
    if value is not None:
        location(value)
    return value


def _search(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _parsed(
    parse: Callable[[object], Any], *schemas: dict[str, Any]
) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(parse), WithJsonSchema({"anyOf": list(schemas)})


_INTEGER: dict[str, Any] = {"type": "integer", "minimum": 1}
_TEXT = {"type": "string"}
_AUTO = {"const": "auto"}
_SIZE_TEXT = {"type": "string", "pattern": f"^{SIZE}$", "examples": ["16GiB", "24GB"]}
_DURATION_TEXT = {"type": "string", "pattern": f"^{DURATION}$", "examples": ["300s", "5m"]}
Size = Annotated[int, *_parsed(size_bytes, _INTEGER, _SIZE_TEXT)]
Duration = Annotated[float, *_parsed(duration_seconds, {"type": "number"}, _DURATION_TEXT)]
Steps = Annotated[int | None, *_parsed(_steps, _INTEGER, {"const": "epoch"})]
MappingOrPath = Annotated[
    dict[str, Any] | str, *_parsed(_mapping_or_path, {"type": "object"}, _TEXT)
]


_TRACKERS: tuple[dict[str, Any], ...] = (
    {"type": "array", "items": {"enum": list(TRACKERS)}, "uniqueItems": True},
    {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": {argument: {} for argument in row.arguments},
            }
            for name, row in TRACKERS.items()
        },
    },
)
Trackers = Annotated[dict[str, dict[str, Any]], *_parsed(read_trackers, *_TRACKERS)]


def _exactly_one(*keys: str) -> dict[str, Any]:
    return {"oneOf": [{"required": [key]} for key in keys]}


class _Section(BaseModel):
    # Strict: the text "8" is not the number 8; a quoted number in YAML is a mistake to point at, not to guess about.
    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, defer_build=True
    )


class ModelSection(_Section, json_schema_extra=_exactly_one("architecture", "name_or_path")):
    """The model to train."""

    task: Task
    """What the model's head does; it decides the Auto class and the shape of synthetic data."""
    architecture: str | None = None
    """A transformers model type (bert, llama, vit ...), built with random weights: nothing is downloaded."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the architecture's own configuration."""
    name_or_path: str | None = None
    """A checkpoint's name, or its folder relative to this file, instead of an architecture."""
    trust_remote_code: bool = False
    """Let the checkpoint bring its own code."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.architecture is None) == (self.name_or_path is None):
            raise ValueError(
                'needs exactly one of "architecture" (random weights) and "name_or_path" (a checkpoint)'
            )
        return self


class SyntheticSection(_Section):
    """Random samples of the task's shape."""

    sequence_length: int = Field(default=512, ge=1)
    """Tokens per text; images have their own size, in model.config."""
    samples: int = Field(default=512, ge=1)
    """Samples in an epoch."""
    padding: float = Field(default=0.0, ge=0, lt=1)
    """Share of a text's positions that are padding."""


class FileSection(_Section):
    """Your own local dataset."""

    path: str
    """A file or folder, relative to this file."""
    format: Literal["parquet", "json", "csv", "arrow", "disk"] | None = None
    """Default: the path's suffix; disk is a folder of datasets.save_to_disk."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Our name (text, text_pair, target, labels, input_ids, pixel_values ...) -> your column's."""
    tokenizer: str | None = None
    """A tokenizer's name, or its folder relative to this file; not needed where the file holds input_ids."""
    max_length: int = Field(default=512, ge=1)
    """Longer texts are cut to this many tokens."""


class DataSection(_Section, json_schema_extra=_exactly_one("synthetic", "file")):
    """What to train on."""

    synthetic: SyntheticSection | None = None
    file: FileSection | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.synthetic is None) == (self.file is None):
            raise ValueError('needs exactly one of "synthetic" and "file"')
        return self


def _synthetic() -> DataSection:
    return DataSection(synthetic=SyntheticSection())


class MeasureSection(_Section):
    """How long and how carefully to measure each trial."""

    warmup_steps: int = Field(default=2, ge=1)
    """Optimizer steps that never count; later ones that are not steady yet do not either."""
    steps: Steps = 10
    """Optimizer steps that count; epoch: one pass over the data, the guides' way."""
    relative_error: float = Field(default=0.01, ge=0, lt=1)
    """Stop before all steps when the speed is known to within this (95 % confidence), or would not be; 0 runs all."""
    repeats: int = Field(default=1, ge=1)
    """Trials of each configuration."""
    deadline: Duration = 300.0
    """A trial is stopped after this long."""
    seed: int = Field(default=42, ge=0)
    inspect: bool = True
    """Read the effective configuration back from the live objects."""
    isolation: Isolation = "fork"
    """fork: a clean child of a preloaded parent; fresh: a new process with its own imports."""
    anatomy: AnatomyOf = "frontier"
    """Which trials are taken apart after their counted steps, memory by class and time by operation: those on the
    frontier (once more, when the search is over), all, or none."""
    verify: bool = True
    """Run each budget's pick once more, its allocator capped to the budget, when the search is over; needs a GPU. This,
    turns and the frontier's anatomy take no more together than a quarter of the search's time, or a minute."""
    turns: int = Field(default=4, ge=0)
    """When the search cannot tell a budget's fastest from another: trials of each, in turns on one GPU; 0: none."""


class CpuSection(_Section):
    """What to measure on a machine without a GPU."""

    warmup_steps: int = Field(default=2, ge=1)
    steps: Steps = 2
    time_budget: Duration = 600.0
    """The whole sweep ends after this long; smallest points first, the rest is recorded as skipped."""


class ResourcesSection(_Section):
    """What a trial may take of its node."""

    cpus_per_trial: Annotated[int, *_parsed(_cpus, _INTEGER, _AUTO)] = 0
    """CPU cores; auto: its GPU's share."""
    host_memory: Annotated[int, *_parsed(_host_memory, _INTEGER, _SIZE_TEXT, _AUTO)] = 0
    """Host memory, such as 64GiB; auto: its GPU's share where it offloads."""
    nvme_path: str | None = None
    """Folder on an NVMe disk for the offload axis's nvme variants."""
    gpu_models: list[str] = Field(default_factory=list)
    """Of unlike GPUs, measure only on those whose name contains one of these (H200, MIG 1g.5gb); default: on each."""
    calibrate: bool = True
    """Where a model has several GPUs, compare them first; one that is throttled or slow gets no trials."""


class SubsetSection(_Section):
    """A named grid laid over the top-level axes."""

    axes: dict[str, Any]


_SEARCH_OPTIONS = {
    "grid": (),
    "frontier": ("tolerance", "audit", "seed"),
    "optuna": ("sampler", "share", "seed"),
}


class SearchSection(_Section):
    """How the plan is walked."""

    kind: Literal["grid", "frontier", "optuna"] = "grid"
    """grid: every point; frontier: those that could be on the memory/speed frontier, the others skipped with reason;
    optuna: a share of the points, as Optuna's multi-objective sampler chooses them."""
    tolerance: float = Field(default=0.02, ge=0, lt=1)
    """frontier: a point is left out when it can be better than a measured one by no more than this."""
    audit: float = Field(default=0.03, ge=0, le=1)
    """frontier: share of what is left out (at least two points) that is measured nevertheless; 0: none."""
    sampler: Literal["tpe", "nsga2"] = "tpe"
    """optuna: the tree-structured Parzen estimator, or the genetic algorithm NSGA-II."""
    share: float = Field(default=0.25, gt=0, le=1)
    """optuna: share of the plan's configurations that is measured."""
    seed: int = Field(default=0, ge=0)
    """frontier: what decides which points are audited; optuna: the sampler's."""

    @property
    def options(self) -> dict[str, Any]:
        """What its kind takes, and nothing of another's."""
        return self.model_dump(include=set(_SEARCH_OPTIONS[self.kind]))

    @model_validator(mode="after")
    def _options_of_its_kind(self) -> Self:
        for given in sorted(self.model_fields_set - {"kind", *_SEARCH_OPTIONS[self.kind]}):
            kinds = " or ".join(
                kind for kind, options in _SEARCH_OPTIONS.items() if given in options
            )
            raise ValueError(f"{given}: only search: {{kind: {kinds}}} has this")
        return self


class SweepSection(_Section):
    """One sweep: a model, a base of TrainingArguments, and the axes to vary."""

    name: str | None = None
    """Default: the file's name."""
    model: ModelSection
    data: DataSection = Field(default_factory=_synthetic)
    training_arguments: MappingOrPath = Field(default_factory=dict)
    """Anything TrainingArguments takes and no axis or runner decides; or the path of a JSON or YAML file."""
    deepspeed: MappingOrPath | None = None
    """Your own DeepSpeed configuration, or the path of its JSON file."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """The grid: axis -> values. A technique axis, effective_batch, or any plain training argument."""
    subsets: dict[str, SubsetSection] = Field(default_factory=dict)
    """Named smaller grids laid over axes; the plan is their union."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Points to leave out: axis -> value or values, all of which must match."""
    trials: list[dict[str, Any]] = Field(default_factory=list)
    """Explicit points after the grid; what one does not name is as in the baseline."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """What the report compares with. Default: each axis's first value, or its default."""
    measure: MeasureSection = MeasureSection()
    cpu: CpuSection = CpuSection()
    resources: ResourcesSection = ResourcesSection()
    budgets: list[Size] = Field(default_factory=list)
    """Memory sizes to recommend a configuration for: 16GiB, 24GB or bytes."""
    search: Annotated[SearchSection, BeforeValidator(_search)] = SearchSection()
    """The kind of search, or a mapping of its kind and options."""
    trackers: Trackers = Field(default_factory=dict)
    """Experiment trackers to report to: their names, or a mapping of names to the arguments of Ray's callbacks."""
    output: Annotated[str | None, AfterValidator(_output)] = None
    """The run folder, or a URI to publish it to (s3://, gs://, hf://datasets/USER/NAME). Default: runs/<name>."""
