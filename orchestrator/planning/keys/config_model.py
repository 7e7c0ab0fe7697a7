"""The file's keys, types and meanings: the one declaration for checks, schema and docs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.spec import Isolation
from orchestrator.planning.keys.config_data import DataSection, ModelSection, SyntheticSection
from orchestrator.planning.keys.config_types import (
    SWITCH,
    Cpus,
    Duration,
    HostMemory,
    MappingOrPath,
    Output,
    RunName,
    Section,
    Size,
    Steps,
    Texts,
)
from orchestrator.planning.keys.loggers import Loggers, LoggersChoice
from orchestrator.planning.keys.search_options import DEFAULT_SEARCH, SearchChoice


class UpkeepSection(Section):
    """What to measure beside the training, its evaluation and its checkpoint."""

    compute_metrics_rows: int | None = Field(default=None, ge=1)
    """Rows of the evaluation, if a ``compute_metrics`` keeps their logits: on the GPU, until
    ``eval_accumulation_steps`` batches. Default: no logits are kept."""
    load_best: bool = False
    """Load the checkpoint's weights at the end, as ``load_best_model_at_end`` does."""
    resume: bool = False
    """Continue from the checkpoint for one step."""
    merge: bool = False
    """Merge the adapter into its base, after all else."""


class MeasureSection(Section):
    """How long and how carefully to measure each trial."""

    warmup_steps: int = Field(default=2, ge=1)
    """Optimizer steps that never count. After them, steps count as soon as they are steady."""
    steps: Steps = 10
    """Largest number of optimizer steps that count. epoch: one pass over the data."""
    relative_error: float = Field(default=0.01, ge=0, lt=1)
    """Stop when the mean step time is known with this relative error (95 % confidence). 0: run all
    steps. Without a GPU, smaller values than 0.05 count as 0.05."""
    repeats: int = Field(default=1, ge=1)
    """Number of trials of each configuration."""
    timeout: Duration = Field(default=300.0, json_schema_extra={"default": "5m"})
    """A trial that takes longer is stopped."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """Seed of weights, data and dropout."""
    inspect: bool = True
    """Read the effective configuration back from the model, the optimizer and the libraries."""
    evaluate_and_save: Annotated[UpkeepSection | None, *SWITCH] = None
    """Also measure an evaluation, in batches of ``per_device_eval_batch_size`` (8), and the saving
    of a checkpoint. Memory figures and predictions then include both."""
    isolation: Isolation = "fork"
    """fork: a clean child of a preloaded process. fresh: a new process with its own imports."""


class FollowUpSection(Section):
    """What to measure again when a search on GPUs has ended. All follow-ups together take at most a
    quarter of the search's slot time, or one minute if that is more."""

    verify_budgets: bool = True
    """Run the pick of each budget again with the GPU's memory capped to the budget."""
    check_gradients: bool = True
    """Compare the gradients of each budget's pick with those in fp32, in a step without dropout."""
    tie_break_rounds: int = Field(default=4, ge=0)
    """Rounds in which close candidates for a budget run again, interleaved on one GPU. 0: none."""
    profile: Literal["frontier", "all", "none"] = "frontier"
    """Configurations to profile (memory by kind, time by operation): those of the frontier, all,
    none."""


class FollowUpPolicy(FollowUpSection):
    """The same with what it may cost."""

    gain_rounds: int = 0
    """Rounds of the baseline and of budgets' picks, interleaved on one GPU, for the gain on rows of
    unequal length: there, single trials vary most. 0: the gain is that of two trials."""
    profiles: int = 8
    """Configurations to profile: budgets' picks, then the frontier."""
    slot_share: float = 0.25
    """All follow-ups together may take this share of the search's own slot time,"""
    min_seconds: float = 60.0
    """and this much after any search."""


class CpuFallback(Section):
    """What to measure on a machine without a GPU."""

    warmup_steps: int = Field(default=2, ge=1)
    """Replaces measure.warmup_steps."""
    steps: Steps = 10
    """Replaces measure.steps. A trial ends earlier if its speed is known, or too unsteady to know.
    """
    time_budget_seconds: Duration = Field(
        default=600.0, alias="time_budget", json_schema_extra={"default": "10m"}
    )
    """Time for the whole sweep, smallest configurations first. The rest is recorded as skipped."""


class Resources(Section):
    """What a trial may use on its node."""

    cpus_per_trial: Cpus = Field(default=0, json_schema_extra={"default": "auto"})
    """CPU cores of a trial. auto: its GPUs' share of the node's cores."""
    host_bytes: HostMemory = Field(
        default=0, alias="host_memory", json_schema_extra={"default": "auto"}
    )
    """Host memory that a trial reserves. auto: its GPUs' share of 0.9 of the node's memory."""
    gpus_per_trial: int = Field(default=1, ge=1)
    """GPUs of one node that a trial reserves. The axis sharding says how they train together."""
    nvme_path: str | None = None
    """Folder on an NVMe disk, for the values of the axis offload that use NVMe."""
    gpu_models: Texts = ()
    """Measure only on GPUs whose name has one of these words: A10 is no A100. Default: every GPU
    model."""
    screen_gpus: bool = True
    """Before measuring, compare the GPUs of each model, and leave out throttled or slow GPUs."""


class OwnCodeSection(Section):
    """Your own code, with each object as module:object. The command must allow it, too. Modules are
    looked up in the folder of the config, and then in the environment."""

    trainer: str | None = None
    """A subclass of transformers.Trainer, such as my_package.train:MyTrainer."""
    callbacks: Texts = ()
    """Subclasses of TrainerCallback."""
    collator: str | None = None
    """A function from a list of rows to a batch, or a class whose objects are such functions."""
    entry: str | None = None
    """A function that returns the Trainer. Its arguments are model, args, train_dataset and others.
    """


class SubsetSection(Section):
    """A named grid, whose values replace those of the top-level axes."""

    axes: dict[str, Any]
    """Axis -> values; an axis that is not named keeps its values from the top level."""


class ConfigFile(Section):
    """One sweep: a model, TrainingArguments for all trials, and the axes to vary."""

    name: RunName | None = None
    """The sweep's name. Default: the file's name."""
    model: ModelSection
    """The model to train."""
    data: DataSection = Field(
        default_factory=lambda: DataSection.model_construct(synthetic=SyntheticSection())
    )
    """What to train on. Default: synthetic samples."""
    training_arguments: MappingOrPath = Field(default_factory=dict)
    """Fields of TrainingArguments for every trial, or the path of a JSON or YAML file with them."""
    deepspeed: MappingOrPath | None = None
    """Your own DeepSpeed configuration, or the path of its JSON file."""
    own_code: OwnCodeSection | None = None
    """Your own Trainer, callbacks or collator. The command must allow it, too."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """The grid: axis -> a value or a list of values. See the axes below."""
    subsets: dict[str, SubsetSection] = Field(default_factory=dict)
    """Named smaller grids, whose values replace those of axes. The plan is the union of all
    subsets."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Configurations to leave out, each as axis -> value or values, which must all match."""
    trials: list[dict[str, Any]] = Field(default_factory=list)
    """Single configurations, in addition to the grid. Axes that are not named are as in the
    baseline."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """The configuration that the report compares with. Default: the first value of each axis, or
    the default of the axis."""
    measure: MeasureSection = MeasureSection.model_construct()
    """How to measure each trial."""
    follow_up: FollowUpSection = FollowUpSection.model_construct()
    """What to measure again at the end."""
    cpu_fallback: CpuFallback = CpuFallback.model_construct()
    """What to measure without a GPU."""
    resources: Resources = Resources.model_construct()
    """CPU cores, host memory and GPUs of a trial."""
    budgets: list[Size] = Field(default_factory=list)
    """Memory sizes, each with a unit. The report names the best configuration within each."""
    search: SearchChoice = DEFAULT_SEARCH
    """Which configurations are measured, in which order: a kind of search, or its kind and options.
    """
    loggers: LoggersChoice = Loggers.model_construct()
    """Experiment loggers to report to: their names, or a mapping of names to arguments."""
    output: Output = None
    """The run folder, or a URI for its upload (s3://, gs://, hf://). Default: runs/NAME."""
