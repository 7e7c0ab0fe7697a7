"""The cards that configurations train on, in words and as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.labels import label
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.reporting.verbs.prediction import heading, time_row
from orchestrator.units import GIB, number

if TYPE_CHECKING:
    from orchestrator.analysis.card_prices import Cheapest
    from orchestrator.prediction.cards import CardFit, OnCards
    from orchestrator.prediction.gpus import Gpu

MICRO_BATCH = "micro_batch"
_NAME_WIDTH = 18
_TIGHT = (
    "tight: it fits only if the allocator gives cached memory back, or if context and kernels take "
    "little; their sizes are assumed on all cards but the H100 and the H200"
)

_RATES = (
    "/s: forecast samples per second; host: launches on the host limit the speed; only the H200's "
    "were compared with measurements"
)


def cards_table(
    answers: Sequence[OnCards],
    cards: Sequence[Gpu],
    axes: Sequence[str],
    cheapest: Sequence[Cheapest | None] = (),
    *,
    evaluates: bool,
) -> str:
    """The smallest card of each configuration by micro-batch, and the ``cheapest`` if prices are
    known."""
    if not answers:
        return "no trials"
    lines = [heading(evaluates=evaluates)]
    grid = _grid(answers, [axis for axis in axes if axis != MICRO_BATCH])
    if len(grid) == 1:
        (by_batch,) = grid.values()
        lines += _every_card(by_batch, cards)
    lines += _by_batch("the smallest card", grid, _smallest)
    if cheapest:
        prices = {id(own): price for own, price in zip(answers, cheapest, strict=True)}
        lines += _by_batch("the cheapest card", grid, lambda own: _price(prices[id(own)]))
        if not any(price and price.per_run is not None for price in cheapest):
            lines.append("no time is known, so prices are per hour; --prices takes hours, too")
        else:
            lines.append("the cheapest: per run, among the cards whose time is known")
    lines += _notes(answers)
    return visible("\n".join(lines))


def _grid(answers: Sequence[OnCards], others: Sequence[str]) -> dict[str, dict[Any, OnCards]]:
    """Label of a configuration without its micro-batch -> its answers by micro-batch."""
    grid: dict[str, dict[Any, OnCards]] = {}
    for own in answers:
        choices = own.prediction.choices
        plain = {axis: value for axis, value in choices.items() if axis != MICRO_BATCH}
        grid.setdefault(label(plain, others), {})[choices.get(MICRO_BATCH)] = own
    return grid


def _every_card(by_batch: Mapping[Any, OnCards], cards: Sequence[Gpu]) -> Iterator[str]:
    """A row for each card, a column for each micro-batch."""
    yield _cells("card", ["GiB", "capability", *map(_batch, by_batch)])
    for card in cards:
        fits = [_fit(own.fits[card.name]) for own in by_batch.values()]
        size = f"{card.total_bytes / GIB:.1f}"
        yield _cells(card.name, [size, f"{card.capability:.1f}", *fits])
    for title, end in (("GPU memory, from", "low"), ("to, in GiB", "high")):
        figures = [own.prediction.device for own in by_batch.values()]
        sizes = ["" if own is None else f"{getattr(own, end) / GIB:.2f}" for own in figures]
        yield _cells(title, ["", "", *sizes])
    yield ""


def _fit(card: CardFit) -> str:
    """Whether it fits and, if so, at how many samples a second."""
    if card.time is None or card.fit not in ("yes", "tight", "maybe"):
        return card.fit
    rate = "host" if card.time.bound == "host" else f"{number(card.time.samples_per_second)}/s"
    return f"{card.fit} {rate}"


def _by_batch(
    title: str, grid: Mapping[str, Mapping[Any, OnCards]], answer: Callable[[OnCards], str]
) -> Iterator[str]:
    """A row for each configuration, a column for each micro-batch."""
    batches = list(dict.fromkeys(batch for by_batch in grid.values() for batch in by_batch))
    width = max(_NAME_WIDTH, *map(len, grid))
    yield _cells(title, map(_batch, batches), width)
    for name, by_batch in grid.items():
        cells = [answer(by_batch[batch]) if batch in by_batch else "" for batch in batches]
        yield _cells(name, cells, width)


def _smallest(own: OnCards) -> str:
    fits = {card.fit for card in own.fits.values()}
    return own.smallest or ("unknown" if "unknown" in fits else "none")


def _price(offer: Cheapest | None) -> str:
    if offer is None:
        return "none"
    is_timed = offer.per_run is not None
    return f"{offer.card} " + (f"{offer.per_run:.2f}" if is_timed else f"{offer.per_hour:.2f}/h")


def _batch(batch: Any) -> str:
    return "memory" if batch is None else f"batch {batch}"


def _cells(name: str, cells: Iterable[str], width: int = _NAME_WIDTH) -> str:
    return f"{name:<{width}}" + "".join(f"  {cell:>12}" for cell in cells)


def _notes(answers: Sequence[OnCards]) -> Iterator[str]:
    """What cards lack, why nothing is predicted, and what the words of the table mean."""
    lacking: dict[str, dict[str, None]] = {}
    for own in answers:
        for name, card in own.fits.items():
            if card.lacks:
                lacking.setdefault(card.lacks, {})[name] = None
    yield from (f"{', '.join(names)}: {lacks}" for lacks, names in lacking.items())
    predictions = [own.prediction for own in answers]
    yield from dict.fromkeys(f"unknown: {own.unknown}" for own in predictions if own.unknown)
    yield from dict.fromkeys(f"refused: {own.refused}" for own in predictions if own.refused)
    shown = [card for own in answers for card in own.fits.values()]
    if any(card.fit == "tight" for card in shown):
        yield _TIGHT
    if any(card.time is not None for card in shown):
        yield _RATES


def cards_row(own: OnCards) -> dict[str, Any]:
    """Plain values: the smallest card, and every card's answer with bytes as integers."""
    cards = {}
    for name, card in own.fits.items():
        ends = ("bytes", "low", "high")
        figures = {f"device_{end}": getattr(card.device, end, None) for end in ends}
        fits = {"fits": card.fit, "lacks": card.lacks}
        cards[name] = {**fits, **figures, **time_row(card.time)}
    return {"smallest_card": own.smallest, "cards": cards}
