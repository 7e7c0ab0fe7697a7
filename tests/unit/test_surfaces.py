"""What the search expects of configurations, and how it compares two of them."""

from __future__ import annotations

import numpy as np

from orchestrator.search.configurations import configurations, measured
from orchestrator.search.prediction import Surfaces
from tests.benchmarks.grids import simulated, with_noise

CERTAINTY = 2.5


def learned() -> Surfaces:
    """From every third configuration of a noisy grid."""
    table = with_noise(simulated(), 0.05, 0)
    planned = configurations(record.spec for record in table.values())
    surfaces = Surfaces(planned, {})
    for one in planned[::3]:
        if found := measured([table[trial_id] for trial_id in one.trial_ids]):
            surfaces.put(one, found)
    return surfaces


def test_a_doubt_that_two_share_is_none_between_them() -> None:
    surfaces = learned()
    predicted = surfaces.predict(CERTAINTY)
    planned = list(predicted)
    leads = surfaces.leads(planned, planned, CERTAINTY)
    assert np.allclose(np.diag(leads), 1.0)
    assert (leads * leads.T >= 1.0 - 1e-9).all()  # each is the best case of one against the other
    high, likely = (np.array([getattr(one, name) for one in predicted.values()]) for name in ("speed_high", "speed"))
    apart = (high / likely)[:, None] * (high / likely)
    assert (leads <= apart * likely[:, None] / likely + 1e-9).all()
