"""What one trial has to run, as plain data that travels as JSON. Import these names from here.

trial.py            ``TrialSpec``: all of one trial, how it is measured and why it is run; its id
model_and_data.py   what is trained: model and data
recipe.py           the choices that change what a training learns
users_code.py       the user's own code, by name
library_settings.py what is handed to which library, and what it may use of its node
plain_json.py       any of these as JSON values, and read back
limits.py           the largest values that a trial can run with
"""

from jobs.spec.library_settings import Hook, HookPlace, LibrarySettings, Needs
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
from jobs.spec.trial import (
    FollowUp,
    Isolation,
    MeasureSpec,
    MemoryCap,
    Purpose,
    TrialSpec,
    UpkeepSpec,
)
from jobs.spec.users_code import UserCode
