"""Predicting without a GPU, as a function, and the predictions as a table that shows itself."""

from __future__ import annotations

import html
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.card_prices import Cheapest, cheapest
from orchestrator.units import size_bytes

if TYPE_CHECKING:
    import pandas

    from jobs.spec import TrialSpec
    from orchestrator.planning.document import Source
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.prediction.cards import OnCards
    from orchestrator.prediction.estimator import Watch
    from orchestrator.prediction.gpus import Gpu
    from orchestrator.prediction.prediction import Prediction
    from orchestrator.prediction.time.step_time import StepTime
    from orchestrator.storage.prices import Price


Config = Path | str | Mapping[str, Any]
"""A YAML file, or what it would hold. Paths in a mapping are relative to the working folder."""


def source_of(config: Config) -> Source:
    """The configuration's file, or the configuration itself."""
    return Path(config) if isinstance(config, str) else config


def predict(
    config: Config,
    *,
    gpu: str | None = None,
    memory: str | Sequence[str] = (),
    trials: Sequence[str] = (),
    choices: Sequence[str] = (),
    trust_remote_code: bool = False,
    allow_own_code: bool = False,
) -> Predictions:
    """Predict the memory of the trials of a sweep, without a GPU.

    ``gpu`` is a card or a file of ``doctor --calibrate``. Without it the answer is for all known
    cards, and for cards of one size or several in ``memory``, such as "12GiB". ``trials`` are
    beginnings of trial ids. All trials are predicted if it is empty. ``choices`` such as
    "precision=bf16" stand in place of the configuration's. Raises ConfigError, and ValueError if
    the GPU has no constants or no trial matches one of ``trials``.
    """
    from orchestrator.planning.plan import plan, trials_with_ids
    from orchestrator.running.early_start import checked_config
    from orchestrator.running.options import VerbOptions

    options = VerbOptions(
        config=source_of(config),
        choices=choices,
        trust_remote_code=trust_remote_code,
        allow_own_code=allow_own_code,
    )
    checked = checked_config(options, warnings.warn)
    chosen = trials_with_ids(plan(checked).trials, trials)
    sizes = [memory] if isinstance(memory, str) else memory
    return predicted(checked, chosen, gpu) if gpu else on_all_cards(checked, chosen, sizes)


def predicted(
    config: SweepConfig, trials: Sequence[TrialSpec], gpu: str, watch: Watch | None = None
) -> Predictions:
    """As ``predict``, for trials of a checked configuration.

    Raises ValueError if the GPU has no constants.
    """
    from orchestrator.prediction.estimator import predict as estimate
    from orchestrator.prediction.estimator import unwatched
    from orchestrator.prediction.gpus import load_gpu
    from orchestrator.prediction.libraries import without_gpus

    constants = load_gpu(gpu)
    # torch and transformers are imported in here, so that they see no GPU.
    with without_gpus():
        predictions = tuple(estimate(trials, constants, watch or unwatched))
    return Predictions(
        config=config,
        gpu=constants.name,
        gpu_bytes=constants.total_bytes,
        predictions=predictions,
        times=_times(predictions, constants),
    )


def on_all_cards(
    config: SweepConfig,
    trials: Sequence[TrialSpec],
    memory: Sequence[str] = (),
    prices: Mapping[str, Price] = MappingProxyType({}),
    watch: Watch | None = None,
) -> Predictions:
    """As ``predict`` without ``gpu``, for trials of a checked configuration.

    ``prices`` are those of ``orchestrator.storage.prices``.
    """
    from orchestrator.prediction.cards import on_cards
    from orchestrator.prediction.estimator import unwatched
    from orchestrator.prediction.gpus import card_of_size, known_cards, load_gpu
    from orchestrator.prediction.libraries import without_gpus

    cards = [*known_cards(), *(card_of_size(size_bytes(text), text) for text in memory)]
    cards.sort(key=lambda card: card.total_bytes)
    with without_gpus():
        answers = tuple(on_cards(trials, cards, watch or unwatched))
    predictions = tuple(own.prediction for own in answers)
    return Predictions(
        config=config,
        gpu="h200",
        predictions=predictions,
        times=_times(predictions, load_gpu("h200")),
        cards=tuple(cards),
        answers=answers,
        cheapest=tuple(_cheapest(own, prices) for own in answers) if prices else (),
    )


def _times(predictions: Sequence[Prediction], gpu: Gpu) -> tuple[StepTime | None, ...]:
    from orchestrator.prediction.time.ranks_time import time_of

    return tuple(None if own.step is None else time_of(own.step, gpu) for own in predictions)


def _cheapest(own: OnCards, prices: Mapping[str, Price]) -> Cheapest | None:
    trains = [name for name, card in own.fits.items() if card.fit == "yes"]
    return cheapest(own.prediction.trial_id, trains, prices)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Predictions:
    """The predicted memory and time of a sweep's trials. Its text is a table."""

    config: SweepConfig
    gpu: str
    gpu_bytes: int = 0
    """Its memory, if one GPU was predicted for."""
    predictions: tuple[Prediction, ...]
    times: tuple[StepTime | None, ...] = ()
    """Of a step of each prediction; None where it is not known."""
    cards: tuple[Gpu, ...] = ()
    """The cards of ``answers``, the smallest first."""
    answers: tuple[OnCards, ...] = ()
    """Each prediction on each card; empty if one GPU was predicted for."""
    cheapest: tuple[Cheapest | None, ...] = ()
    """For each prediction the cheapest card with a price; empty without prices."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per trial: bytes as integers, None if unknown."""
        from orchestrator.reporting.verbs.card_table import cards_row
        from orchestrator.reporting.verbs.prediction import row, time_row

        rows = [row(prediction) for prediction in self.predictions]
        for values, time in zip(rows, self.times, strict=True):
            values |= time_row(time)
        for values, own in zip(rows, self.answers, strict=False):
            values |= cards_row(own)
        for values, price in zip(rows, self.cheapest, strict=False):
            values["cheapest"] = None if price is None else asdict(price)
        return rows

    def to_json(self) -> list[dict[str, Any]]:
        """``rows`` as ``--json`` prints them, with the choices as an object."""
        pairs = zip(self.rows, self.predictions, strict=True)
        return [{**values, "choices": dict(own.choices)} for values, own in pairs]

    def to_pandas(self) -> pandas.DataFrame:
        """One row per trial."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __len__(self) -> int:
        return len(self.predictions)

    def __repr__(self) -> str:
        from orchestrator.reporting.verbs.card_table import cards_table
        from orchestrator.reporting.verbs.prediction import table

        axes = self.config.axes_in_play
        evaluates = self.config.measure.evaluate_and_save
        if not self.cards:
            gpu = (self.gpu, self.gpu_bytes)
            return table(self.predictions, axes, self.times, evaluates=evaluates, gpu=gpu)
        return cards_table(self.answers, self.cards, axes, self.cheapest, evaluates=evaluates)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"
