"""Which branch of the law an observation shows, by all observations."""

from __future__ import annotations

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.performance_model import Branch

_GROWS_ON_CURVE = 1.3
"""A host-bound time above this many times that of a smaller micro-batch is no constant floor. The
time of a host varies by less."""
_GROWS_ELSEWHERE = 3.0
"""The same compared with other techniques, which change the time of the host, too."""
_EQUAL_LOADING = 0.05
"""Two host-bound rows within this distance of seconds per sample wait for the same loader, as a
logarithm."""


def branches_of(seen: Indices, *, costs: Array, sizes: Array, curves: Indices) -> Indices:
    """The branch of each observation, corrected; all arrays have the shape (measured,).

    A time that grows with the micro-batch is no floor, whatever limits it: a host that loads the
    samples takes longer for more of them. The law describes it by its line.
    """
    branches = seen.copy()
    floors = seen == Branch.HOST_BOUND
    for row in np.flatnonzero(floors):
        smaller = floors & (sizes < sizes[row])
        on_curve = costs[smaller & (curves == curves[row])].min(initial=np.inf)
        elsewhere = costs[smaller].min(initial=np.inf)
        if costs[row] > min(_GROWS_ON_CURVE * on_curve, _GROWS_ELSEWHERE * elsewhere):
            branches[row] = Branch.GPU_BOUND
    # A host that loads the samples is as fast in samples per second with other techniques.
    per_sample = np.log(costs / sizes)
    for row in np.flatnonzero(floors & (branches == Branch.GPU_BOUND)):
        is_equal = np.abs(per_sample - per_sample[row]) < _EQUAL_LOADING
        branches[floors & is_equal] = Branch.GPU_BOUND
    return branches
