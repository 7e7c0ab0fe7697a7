"""What one trial has to run, as plain data that travels as JSON. Import these names from here.

trial.py            ``TrialSpec``: all of one trial
model_and_data.py   what is trained: model and data
measure.py          how it is measured: steps, time limit, memory cap
follow_up.py        why it is run: for the search, or to check its result
recipe.py           the choices that change what a training learns
user_code.py        the user's own code, by name
settings.py         what is handed to which library, and what it may use of its node
identity.py         the trial's id
plain_json.py       any of these as JSON values, and read back
limits.py           the largest values that a trial can run with
"""

from jobs.spec.follow_up import FollowUp, Purpose
from jobs.spec.measure import Isolation, MeasureSpec, MemoryCap
from jobs.spec.model_and_data import (
    DatasetFile,
    DataSpec,
    Distribution,
    FileFormat,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
    Task,
)
from jobs.spec.plain_json import from_json, to_json
from jobs.spec.recipe import PLAIN, Choice, TrainingRecipe
from jobs.spec.settings import Hook, HookPlace, LibrarySettings, Needs
from jobs.spec.trial import TrialSpec
from jobs.spec.user_code import UserCode

__all__ = [
    "PLAIN",
    "Choice",
    "DataSpec",
    "DatasetFile",
    "Distribution",
    "FileFormat",
    "FollowUp",
    "Hook",
    "HookPlace",
    "Isolation",
    "LibrarySettings",
    "MeasureSpec",
    "MemoryCap",
    "ModelSpec",
    "Needs",
    "Purpose",
    "RowLengthDistribution",
    "SyntheticData",
    "Task",
    "TrainingRecipe",
    "TrialSpec",
    "UserCode",
    "from_json",
    "to_json",
]
