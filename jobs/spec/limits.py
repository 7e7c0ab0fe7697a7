"""The largest values that a trial can run with, and sentences about values beyond them."""

from typing import get_args

from jobs.spec.model_and_data import FileFormat
from jobs.spec.trial import TrialSpec

MAX_SEED = 2**32 - 1
"""NumPy takes no larger seed (``numpy.random.seed``), and transformers seeds NumPy."""

MAX_TIMEOUT_SECONDS = 366 * 24 * 3600.0
"""A year: longer than any trial."""


def problem_of(spec: TrialSpec) -> str:
    """The first reason why no library could run a trial of a JSON file; empty if there is none."""
    seed = spec.measure.seed
    if not 0 <= seed <= MAX_SEED:
        limit = f"{MAX_SEED}, the largest seed that NumPy takes"
        return f"measure.seed is {seed}: it must be from 0 to {limit}"
    timeout = spec.measure.timeout_seconds
    if not 0 < timeout <= MAX_TIMEOUT_SECONDS:
        return f"measure.timeout_seconds is {timeout:g}: it must be above zero and at most a year"
    file = spec.data.file
    if file is not None and file.format not in get_args(FileFormat):
        formats = ", ".join(get_args(FileFormat))
        return f"data.file.format is {file.format!r}: it must be one of {formats}"
    return ""
