"""What is predicted of a trial: memory with an interval, its anatomy, and the cards it fits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from jobs.errors import classify
from jobs.record import Outcome
from jobs.spec import Choice, TrialSpec
from orchestrator.prediction.time.operations import StepWork
from orchestrator.units import MIB

Fit = Literal["yes", "maybe", "tight", "no", "unknown"]
"""Whether a trial runs on a card. yes: everything fits. maybe: it would if the card behaved as the
GPU whose constants were measured. tight: cached memory must be given back. no: tensors alone do not
fit, or the trial raises."""

CARDS: Mapping[int, int] = {
    16: 15_360 * MIB,  # T4
    24: 23_028 * MIB,  # A10
    40: 40_536 * MIB,  # A100 40 GB
    48: 46_068 * MIB,  # A40, L40S
    80: 81_559 * MIB,  # H100 80 GB
    141: 143_771 * MIB,  # H200
}
"""Nominal GB -> bytes that NVML reports for the smallest common card of that size, ECC on."""
_OLDER_CARDS = (16,)
"""Those of ``CARDS`` whose common GPUs (T4, V100) have a compute capability below 8.0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Bytes, and the interval that should hold the measurement."""

    bytes: int
    low: int
    high: int
    rarely: int = 0
    """Bytes above ``high`` that the allocator reserves at rare addresses of segments."""

    @property
    def most(self) -> int:
        """What is never too little, so a card fits by it."""
        return self.high + self.rarely

    def plus(self, nbytes: int) -> Self:
        """The same figure and interval, so many bytes higher."""
        low, high = self.low + nbytes, self.high + nbytes
        return replace(self, bytes=self.bytes + nbytes, low=low, high=high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """What a GPU without measured constants may need, in bytes."""

    least: int
    """Tensors, context and libraries: less memory is never enough."""
    high: int
    """The upper end of the interval of the device's memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What an unknown trial needs on any card, in bytes."""

    least: int
    """Context, weights and optimizer states: less memory is never enough."""
    most: int | None
    """None: nothing bounds it above."""

    def fits(self, card_bytes: int) -> Fit:
        if self.least > card_bytes:
            return "no"
        return "unknown" if self.most is None or self.most > card_bytes else "yes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A training's peaks over an epoch, or why there are none."""

    trial_id: str
    choices: Mapping[str, Choice]
    allocated: Figure | None = None
    """Most bytes held by tensors, as ``peak_allocated_bytes`` counts them."""
    reserved: Figure | None = None
    """Most bytes that the caching allocator holds."""
    device: Figure | None = None
    """What NVML would see, context and libraries included."""
    elsewhere: Elsewhere | None = None
    """The same on another GPU model; None: every card is like the GPU that was predicted for."""
    trial_device: Figure | None = None
    """What NVML would see of a trial, which trains on a few batches only; None if all batches are
    equally long. The other figures are then of an epoch, in the data's own order."""
    epoch_steps: int | None = None
    """Optimizer steps of that epoch."""
    longest_tokens: int | None = None
    """Tokens of its longest sequence."""
    measured_bytes: int | None = None
    """Memory of the GPU whose constants were all measured; None if some were not."""
    anatomy: Mapping[str, int] = field(default_factory=dict)
    """Kind of memory (``jobs.anatomy.memory.ledger``) -> bytes at the peak of ``allocated``."""
    unknown: str = ""
    """Why nothing is predicted; empty if something is."""
    bounds: Bounds | None = None
    """What is known of an unknown trial all the same; None if nothing is."""
    refused: str = ""
    """Why the trial would raise, whatever the memory; empty if it would run."""
    largest_block: int | None = None
    """Bytes of a step's largest request: what the allocator may keep twice."""
    needs_ampere: bool = False
    """Whether a GPU below capability 8.0 would need more memory, for attention's scores."""
    step: StepWork | None = None
    """The kernels of a step, of which ``step_time`` makes seconds; None if they are not known."""
    notes: tuple[str, ...] = ()
    """Why the interval is wider than usual, a sentence each."""

    @property
    def cards(self) -> dict[int, Fit]:
        """Nominal GB of each of ``CARDS`` -> whether the trial runs on such a card."""
        fits = {card: self.fits(size) for card, size in CARDS.items()}
        for card in _OLDER_CARDS:
            if self.needs_ampere and fits[card] in ("yes", "tight"):
                fits[card] = "maybe"
        return fits

    def fits(self, card_bytes: int) -> Fit:
        """Whether the trial runs on a card of this size."""
        if self.refused:
            return "no"
        if self.device is None or self.allocated is None or self.reserved is None:
            return "unknown" if self.bounds is None else self.bounds.fits(card_bytes)
        # Context and libraries, the part of the device's memory that no allocator gives back.
        least = self.allocated.low + self.device.low - self.reserved.low
        high = self.device.most
        if self.elsewhere is not None and not self._is_measured(card_bytes):
            least = self.elsewhere.least
            high = self.elsewhere.high
        if high <= card_bytes:
            return "yes"
        if least > card_bytes:
            return "no"
        # By the constants of the measured GPU it may fit; the card's own are not known.
        return "maybe" if self.device.most <= card_bytes else "tight"

    def _is_measured(self, card_bytes: int) -> bool:
        if self.measured_bytes is None:
            return False
        # Cards of one model differ by less than 1 %, with ECC or without.
        return abs(card_bytes - self.measured_bytes) <= 0.01 * self.measured_bytes


def figure(nbytes: int, *, below: float, above: float, slack: int = 0) -> Figure:
    """Bytes with a relative interval, and ``slack`` bytes more above."""
    low = int(nbytes * (1 - below))
    high = int(nbytes * (1 + above)) + slack
    return Figure(bytes=nbytes, low=low, high=high)


def unknown(spec: TrialSpec, error: Exception | str) -> Prediction:
    """A prediction that says why nothing is known, or why the trial would raise as its trace."""
    if isinstance(error, Exception):
        outcome, _, reason = classify(error)
        # A package that is missing here may be where the trial runs.
        if outcome is Outcome.UNSUPPORTED and "installed" not in reason:
            refused = f"it raises: {reason}"
            return Prediction(trial_id=spec.trial_id, choices=spec.choices, refused=refused)
        first, *_ = str(error).strip().splitlines() or [""]
        error = f"{type(error).__name__}: {first}"
    return Prediction(trial_id=spec.trial_id, choices=spec.choices, unknown=error)
