"""Several searches as one."""

from orchestrator.search.grid import Grid
from orchestrator.search.round_robin import RoundRobin
from tests.support.devices import Device, make_trial


def test_round_robin_asks_in_turn_and_goes_on_with_those_left():
    searches = [Grid([make_trial(size, 1)]) for size in (1, 2)]
    searches.append(Grid([make_trial(size, 1) for size in (4, 8, 16)]))
    search, device, sizes = RoundRobin(searches), Device(), []
    while (trial := search.ask()) is not None:
        sizes.append(trial.micro_batch)
        search.tell(device.run(trial))
    assert sizes == [1, 2, 4, 8, 16]
    assert search.exhausted
