"""What one trial has to run and why: a ``TrialSpec``, plain data that travels as JSON; its id."""

import enum
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.spec.library_settings import LibrarySettings, Needs
from jobs.spec.model_and_data import DataSpec, ModelSpec
from jobs.spec.plain_json import changed_fields, to_json
from jobs.spec.recipe import PLAIN, Choice, TrainingRecipe
from jobs.spec.users_code import UserCode

Isolation = Literal["fork", "fresh"]
"""How a trial's process is made: a fork of a preloaded parent, or a new interpreter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCap:
    """A smaller GPU, simulated on a larger one by capping PyTorch's allocator."""

    device_bytes: int
    """All that the trial may take, its CUDA context and libraries included."""
    non_allocator_bytes: int = 0
    """What context and libraries took uncapped, or the trial's own context if that is larger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpkeepSpec:
    """What is measured beside a training, its evaluation and its checkpoint."""

    compute_metrics_rows: int | None = None
    """Rows of the evaluation, whose logits are kept as for a ``compute_metrics``; None: no logits
    are kept, and two batches are evaluated."""
    load_best: bool = False
    """Load the checkpoint's weights into the trained model."""
    resume: bool = False
    """Continue from the checkpoint for one step."""
    merge: bool = False
    """Merge the adapter into its base, after all else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureSpec:
    """How long and how carefully to measure."""

    warmup_steps: int = 2
    """Optimizer steps that never count."""
    steps: int | None = 10
    """Optimizer steps that count, at most; None: one whole epoch, as the Hugging Face guides do."""
    relative_error: float = 0.0
    """Stop once the mean step is known to within this share (95 %), or would never be. 0: never."""
    timeout_seconds: float = 300.0
    """Not part of the trial's identity."""
    seed: int = 42
    """The seed of weights, data, the order of the data, and dropout."""
    inspect: bool = True
    """Read the effective configuration back from the live objects."""
    isolation: Isolation = "fork"
    profile: bool = False
    """Break memory and time down after the counted steps (``jobs.anatomy``)."""
    gradients: bool = False
    """Compare the gradients of a step with a reference after everything else; without dropout."""
    memory_cap: MemoryCap | None = None
    """None: the trial may use the whole GPU."""
    evaluate_and_save: bool = False
    """Measure the memory of an evaluation and of a checkpoint after everything else."""
    upkeep: UpkeepSpec = UpkeepSpec()
    """How, if they are measured."""


class Purpose(enum.StrEnum):
    """Why a trial is run. Only trials of the search are ranked; the others check them."""

    SEARCH = "search"
    CAP_CHECK = "cap_check"
    """Repeats a budget's pick under a memory cap of the budget's size: does it fit?"""
    TIE_BREAK = "tie_break"
    """Repeats close configurations in turn on one GPU: which is faster?"""
    GRADIENTS = "gradients"
    """Repeats a budget's pick to compare its gradients with a reference in fp32: are they right?"""
    PROFILE = "profile"
    """Repeats a configuration to see where its memory and time go."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUp:
    """Which finished trial a trial measures again, and why."""

    follows_trial: str
    purpose: Purpose
    compared_with: tuple[str, ...] = ()
    """Ids of the trials that a tie-break compares, this one's included, on one slot in a row."""
    round: int = 0
    """Number of this round of the tie-break, from 0."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Everything that one trial has to run."""

    choices: Mapping[str, Choice]
    """Axis -> the variant chosen, every axis of the sweep included."""
    model: ModelSpec
    data: DataSpec
    settings: LibrarySettings
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    needs: Needs = field(default_factory=Needs)
    repeat: int = 0
    """Number of this repeat of the configuration, from 0."""
    training_recipe: TrainingRecipe = PLAIN
    follow_up: FollowUp | None = None
    """None: a trial of the search."""
    gpu_model: str = ""
    """The only GPU model that may run the trial, if a sweep has several models; empty: any."""
    own_code: UserCode | None = None
    """The user's own Trainer, callbacks or collator; None: only the libraries' own code runs."""
    world_size: int = 1
    """Processes that train together, its ranks, on a GPU each."""

    @functools.cached_property
    def trial_id(self) -> str:
        """Twelve hexadecimal digits, the same for the same work on any machine."""
        return _identity(self)

    @property
    def purpose(self) -> Purpose:
        return Purpose.SEARCH if self.follow_up is None else self.follow_up.purpose

    @property
    def micro_batch(self) -> int:
        """Samples per forward pass."""
        # 8 is the default of TrainingArguments.
        return int(self.settings.training_arguments.get("per_device_train_batch_size", 8))

    @property
    def may_be_ragged(self) -> bool:
        """Whether rows may differ in length. Images of a file are all of the model's size."""
        return self.data.may_be_ragged and self.model.task != "image-classification"

    @property
    def accumulation(self) -> int:
        """Forward passes per optimizer step."""
        return int(self.settings.training_arguments.get("gradient_accumulation_steps", 1))

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step, of all ranks together."""
        return self.micro_batch * self.accumulation * self.world_size


_latest: dict[str, tuple[object, Any]] = {}
"""Field -> its latest object, and that as JSON: the trials of a plan share most of them."""


def _identity(spec: TrialSpec) -> str:
    """The digest of a spec.

    Fields at their defaults are left out, so that a new field with a default renames no trial. The
    choices are left out, too, because ``settings`` holds what they decide, except for micro-batch
    and accumulation: one that is not a whole number is in no settings.
    """
    content = {}
    for name, value in changed_fields(spec):
        if name in ("choices", "needs", "training_recipe"):
            continue
        latest, content[name] = _latest.get(name, (None, None))
        if latest is not value:
            content[name] = to_json(value, defaults=False)
            _latest[name] = (value, content[name])
    measure = content.pop("measure", {})
    if kept := {key: measure[key] for key in measure if key != "timeout_seconds"}:
        content["measure"] = kept
    if spec.choices.get("sharding", "none") != "none":
        # The axis offload has the same settings for one GPU, so that only the choices differ.
        content["sharding"] = [spec.choices["sharding"], spec.choices.get("offload")]
    content["batch"] = [spec.choices.get("micro_batch"), spec.choices.get("accumulation")]
    text = json.dumps(content, sort_keys=True)
    # Among 20,000 trials, two collide in 12 digits with a chance of 1 in a million.
    return hashlib.sha256(text.encode()).hexdigest()[:12]
