"""The cheapest card, by prices and by times that are given or recorded."""

from pathlib import Path

import pytest

from orchestrator.analysis.card_prices import Cheapest, cheapest
from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.prices import Price, read_prices

RUN = Path(__file__).parents[3] / "docs/results/2026-11-25-compile-2xh100/vit"


def test_cheapest_card_is_that_of_the_run_if_a_time_is_known():
    prices = {
        "t4": Price(price=0.4),
        "l4": Price(price=0.8, hours=4),
        "h100": Price(price=2.5, hours=1),
    }
    both = cheapest("0123456789ab", ["t4", "l4", "h100"], prices)
    assert both == Cheapest(card="h100", per_hour=2.5, per_run=2.5)
    untimed = cheapest("0123456789ab", ["t4"], prices)
    assert untimed == Cheapest(card="t4", per_hour=0.4, per_run=None)
    assert cheapest("0123456789ab", ["b200"], prices) is None


def test_recorded_speed_gives_the_time_of_a_run():
    row = next(row for row in load_dataset(RUN).rows if row["samples_per_second"])
    samples = int(row["samples_per_second"] * 7200)
    prices = {"h100": Price(price=2.0, run=str(RUN), samples=samples)}
    offer = cheapest(row["trial_id"], ["h100"], prices)
    assert offer.per_run == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("text", ["[1]", "{a1000: 1}", "{t4: cheap}", "{t4: {price: 1, run: x}}"])
def test_prices_that_cannot_be_read_are_refused(tmp_path, text):
    file = tmp_path / "prices.yaml"
    file.write_text("{t4: 0.4, l4: {price: 1, hours: 2}}")
    assert read_prices(file, ["t4", "l4"])["l4"] == Price(price=1, hours=2)
    file.write_text(text)
    with pytest.raises(ValueError, match=r"prices.yaml"):
        read_prices(file, ["t4", "l4"])
