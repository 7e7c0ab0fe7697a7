"""On which of many cards a trial runs: the table that ``predict`` prints without ``--gpu``.

A card has the trace of its representative: the card that stands for all GPUs for which PyTorch
picks the same attention kernels. Its own are its memory, its number formats and, if they were
measured, the sizes of context and kernels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.spec import TrialSpec
from orchestrator.prediction.estimator import Watch, predict_on, unwatched
from orchestrator.prediction.gpus import REPRESENTATIVES, Gpu, load_gpu
from orchestrator.prediction.prediction import Figure, Fit, Prediction
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.time.step_time import StepTime


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFit:
    """Whether a trial runs on a card."""

    fit: Fit
    lacks: str = ""
    """What the card lacks for the trial, or for its full speed; empty if nothing."""
    device: Figure | None = None
    """What NVML would see there; None if that is not known."""
    time: StepTime | None = None
    """Of a step; None if it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OnCards:
    """A trial on each card, the smallest first."""

    prediction: Prediction
    """By the constants of the H200."""
    fits: Mapping[str, CardFit]

    @property
    def smallest(self) -> str | None:
        """The smallest card on which the trial surely runs; None if there is none."""
        return next((name for name, own in self.fits.items() if own.fit == "yes"), None)


def on_cards(
    trials: Sequence[TrialSpec], cards: Iterable[Gpu], watch: Watch = unwatched
) -> list[OnCards]:
    """Each trial, in order, on each card."""
    ordered = sorted(cards, key=lambda card: card.total_bytes)
    representatives = [load_gpu(name) for name in REPRESENTATIVES.values()]
    answers = []
    for spec, own in zip(trials, predict_on(trials, representatives, watch), strict=True):
        by_kernels = dict(zip(REPRESENTATIVES, own, strict=True))
        fits = {card.name: card_fit(spec, by_kernels[card.kernels], card) for card in ordered}
        answers.append(OnCards(prediction=own[0], fits=fits))
    return answers


def card_fit(spec: TrialSpec, prediction: Prediction, card: Gpu) -> CardFit:
    """The answer by what the card can run, and by its memory.

    ``prediction`` is by the constants of the card's representative.
    """
    if lacks := _refusal(spec, card):
        return CardFit(fit="no", lacks=lacks)
    own = _on_card(prediction, card, deepspeed=spec.settings.deepspeed is not None)
    return CardFit(
        fit=own.fits(card.total_bytes),
        lacks=_slowdown(spec, card),
        device=own.device,
        time=None if prediction.step is None else time_of(prediction.step, card),
    )


def _on_card(prediction: Prediction, card: Gpu, *, deepspeed: bool) -> Prediction:
    """The representative's prediction with the memory of this card's context and kernels."""
    device, other = prediction.device, prediction.elsewhere
    if device is None or other is None:
        return prediction
    if not card.is_measured(deepspeed=deepspeed):
        # The constants are assumed, so the interval holds those of every card.
        device = replace(
            device, low=min(device.low, other.least), high=max(device.high, other.high)
        )
        return replace(prediction, device=device, measured_bytes=None)
    more = card.outside_bytes - load_gpu(REPRESENTATIVES[card.kernels]).outside_bytes
    device = device.plus(more)
    return replace(prediction, device=device, measured_bytes=card.total_bytes)


def _refusal(spec: TrialSpec, card: Gpu) -> str:
    """The compute capability that a technique of the trial needs and the card lacks."""
    needed = [
        float(requirement.removeprefix("capability>="))
        for requirement in spec.settings.requires
        if requirement.startswith("capability>=")
    ]
    if max(needed, default=0.0) <= card.capability:
        return ""
    return f"a technique needs compute capability {max(needed)}"


def _slowdown(spec: TrialSpec, card: Gpu) -> str:
    """The number format that the card can only emulate; PyTorch does that for bf16."""
    arguments, kwargs = spec.settings.training_arguments, spec.settings.model_kwargs
    uses_bf16 = arguments.get("bf16") or kwargs.get("dtype") == "bfloat16"
    return "bf16 without tensor cores" if uses_bf16 and card.capability < 8.0 else ""
