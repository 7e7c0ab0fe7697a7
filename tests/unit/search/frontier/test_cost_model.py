"""What the search expects of configurations, and how it compares two of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.search.frontier.configurations import configurations, measured
from orchestrator.search.frontier.surrogate import Surfaces
from tests.benchmarks.grids import simulated, with_noise

CERTAINTY = 2.5


def learned(launch_bound_share: float = 0.0) -> Surfaces:
    """From every fifth configuration of a noisy grid, whose GPU may have waited in forward passes at micro-batch 16."""
    table = with_noise(simulated(), 0.05, 0)
    planned = configurations(record.spec for record in table.values())
    surfaces = Surfaces(planned, {})
    for one in planned[::5]:
        if found := measured([table[trial_id] for trial_id in one.trial_ids]):
            surfaces.put(
                one,
                replace(
                    found, launch_bound_share=launch_bound_share if one.micro_batch == 16 else 0.0
                ),
            )
    return surfaces


def test_a_doubt_that_two_share_is_none_between_them() -> None:
    surfaces = learned()
    predicted = surfaces.predict(CERTAINTY)
    planned = list(predicted)
    leads = surfaces.leads(planned, planned, CERTAINTY)
    assert np.allclose(np.diag(leads), 1.0)
    assert (leads * leads.T >= 1.0 - 1e-9).all()  # each is the best case of one against the other
    high, likely = (
        np.array([getattr(one, name) for one in predicted.values()])
        for name in ("speed_high", "speed")
    )
    apart = (high / likely)[:, None] * (high / likely)
    assert (leads <= apart * likely[:, None] / likely + 1e-9).all()


def test_a_speed_that_is_the_hosts_in_part_binds_its_neighbours_less() -> None:
    surfaces = [learned(launch_bound_share) for launch_bound_share in (0.0, 0.4)]
    bound, free = (
        [
            one.speed_high / one.speed
            for known, one in found.predict(CERTAINTY).items()
            if known.micro_batch == 32
        ]
        for found in surfaces
    )
    assert np.median(free) > 1.05 * np.median(bound)
