"""The largest values that a trial can run with, and sentences about values beyond them."""

from __future__ import annotations

from typing import get_args

from jobs.spec.model_and_data import FileFormat
from jobs.spec.trial import TrialSpec

MAX_SEED = 2**32 - 1
"""NumPy takes no larger seed (``numpy.random.seed``), and transformers seeds NumPy."""

MAX_TIMEOUT_SECONDS = 14 * 24 * 3600.0
"""Two weeks: longer than any trial. The kernel's ``poll`` counts milliseconds in 32 bits, which are
24 days, and Python's timestamps overflow at 292 years."""


def seed_problem(seed: int) -> str:
    """Why a trial cannot run with this seed, as the end of a sentence; empty if it can."""
    if 0 <= seed <= MAX_SEED:
        return ""
    return f"must be from 0 to {MAX_SEED}, the largest seed that NumPy takes"


def timeout_problem(seconds: float) -> str:
    """Why a trial cannot have this timeout, as the end of a sentence; empty if it can."""
    if 0 < seconds <= MAX_TIMEOUT_SECONDS:
        return ""
    return "must be above zero and at most 336h, which is two weeks"


def problem_of(spec: TrialSpec) -> str:
    """The first reason why no library could run a trial; empty if there is none.

    A config is checked when it is read. This is for specs that come from a file of JSON.
    """
    if problem := seed_problem(spec.measure.seed):
        return f"measure.seed is {spec.measure.seed}: it {problem}"
    if problem := timeout_problem(spec.measure.timeout_seconds):
        return f"measure.timeout_seconds is {spec.measure.timeout_seconds:g}: it {problem}"
    file = spec.data.file
    if file is not None and file.format not in get_args(FileFormat):
        formats = ", ".join(get_args(FileFormat))
        return f"data.file.format is {file.format!r}: it must be one of {formats}"
    return ""
