"""What one trial has to run: a ``TrialSpec``, plain data that travels as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.spec.follow_up import FollowUp, Purpose
from jobs.spec.identity import identity
from jobs.spec.measure import MeasureSpec
from jobs.spec.model_and_data import DataSpec, ModelSpec
from jobs.spec.recipe import PLAIN, Choice, TrainingRecipe
from jobs.spec.settings import LibrarySettings, Needs
from jobs.spec.user_code import UserCode


class _CachesIdentity:
    """Keeps the identity outside the fields, so that it is not compared, copied or written."""

    __slots__ = ("_trial_id",)
    _trial_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSpec(_CachesIdentity):
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

    @property
    def trial_id(self) -> str:
        """Twelve hexadecimal digits, the same for the same work on any machine."""
        try:
            return self._trial_id
        except AttributeError:  # not computed yet
            computed = identity(self, choices=self.choices)
            object.__setattr__(self, "_trial_id", computed)
            return computed

    @property
    def purpose(self) -> Purpose:
        """Why the trial is run."""
        if self.follow_up is None:
            return Purpose.SEARCH
        return self.follow_up.purpose

    @property
    def micro_batch(self) -> int:
        """Samples per forward pass."""
        # 8 is the default of TrainingArguments.
        return int(self.settings.training_arguments.get("per_device_train_batch_size", 8))

    @property
    def accumulation(self) -> int:
        """Forward passes per optimizer step."""
        return int(self.settings.training_arguments.get("gradient_accumulation_steps", 1))

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.micro_batch * self.accumulation
