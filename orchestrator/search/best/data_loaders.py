"""What the trials show about data loaders: whether the GPU waits for data.

Candidates that differ in their data loader alone are twins. Their GPU does the same work, so they
are equally fast unless the GPU waits for data.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from orchestrator.search.model.arrays import Array, Mask, Numbering
from orchestrator.search.model.candidates import Candidate

NOTICED_DATA_SHARE = 0.1
"""Below this share of a step for preparing a batch, the GPU does not wait for it."""
_AXIS = "dataloader"
_NOISE = 0.003
"""By how much another data loader may change the time where the GPU does not wait, as a
logarithm."""


class Loaders:
    """The twins of a plan, and which of them need no trial."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        choices = [candidate.trials[0].choices for candidate in candidates]
        self._loaders = Numbering[object]().of(own.get(_AXIS) for own in choices)
        """Index of each candidate's data loader, shape (candidates,)."""
        others = [tuple(own[axis] for axis in own if axis != _AXIS) for own in choices]
        self._twins = Numbering[object]().of(others)
        """Index of each candidate's group of twins, shape (candidates,)."""
        self._slow: set[int] = set()
        """Data loaders that a GPU has waited for."""
        self._shortest = np.full(len(candidates), math.inf)
        """By group of twins: the shortest micro-batch of a GPU that did not wait, in seconds."""

    def note(self, index: int, data_share: float, seconds: float) -> None:
        """Learn the seconds of a micro-batch that did not wait for the host's launches, and the
        time to prepare a batch / the time of a step."""
        if data_share > NOTICED_DATA_SHARE:
            self._slow.add(int(self._loaders[index]))
        else:
            np.minimum.at(self._shortest, self._twins[index], seconds)

    def least_seconds(self) -> Array:
        """Lower bounds of the seconds of a micro-batch, 0 if there is none, shape (candidates,)."""
        least = self._shortest[self._twins] * math.exp(-_NOISE)
        return np.nan_to_num(least, posinf=0.0)

    def largest_of_twins(self, values: Array) -> Array:
        """The largest value of a candidate and its twins, shape (candidates,)."""
        largest = np.full(len(values), -np.inf)
        np.maximum.at(largest, self._twins, values)
        return np.asarray(largest[self._twins])

    def wait_for_a_twin(self, log_speed: Array, can_run: Mask, measured: Iterable[int]) -> Mask:
        """Whether a candidate waits for the trial of a twin, shape (candidates,): its first trial
        shows whether the GPU waits for data. Of the twins that ``can_run`` the one expected to be
        fastest comes first, but a data loader that a GPU has waited for comes later."""
        is_slow = np.isin(self._loaders, list(self._slow))
        # The last key is the first to sort by.
        ranked = np.lexsort((-log_speed, is_slow, ~can_run, self._twins))
        is_first = np.zeros(len(ranked), bool)
        is_first[ranked] = np.diff(self._twins[ranked], prepend=-1) != 0
        has_measured = np.isin(self._twins, self._twins[list(measured)])
        return np.asarray(~is_first & ~has_measured)
