"""What one could train with: as measured, or inferred from less accumulation.

A row may accumulate with a loss of the wrong scale. It trained something else than its reference,
so it is no candidate. If the same micro-batch was also measured with less accumulation and correct
losses, that row serves, because an exported training corrects the scale.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from jobs.flags import Flag, FlagKind
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A candidate: a configuration that one could train with, and how its figures are known."""

    configuration: Configuration
    """The choices to train with, and the memory and speed to expect."""
    measured: Configuration
    """Whose losses count as the candidate's; ``configuration`` itself, unless it is inferred: then
    speed and memory are bounds."""
    larger: Configuration | None = None
    """The larger neighbour of a micro-batch between two measured ones."""
    suspicion: Flag | None = None
    """Set if another row with the same loop accumulates wrongly: how wrong its loss is."""

    @property
    def is_inferred(self) -> bool:
        """Whether no trial measured this configuration at this batch."""
        return self.configuration is not self.measured

    @property
    def accumulation(self) -> int:
        return self.configuration.accumulation

    @property
    def micro_batch(self) -> int:
        return self.configuration.micro_batch

    @property
    def effective_batch(self) -> int:
        return self.configuration.effective_batch

    @property
    def memory_bytes(self) -> int:
        return self.configuration.memory_bytes

    @property
    def extra_bytes(self) -> int:
        """Memory that the inference adds: gradients that are kept between passes."""
        return self.memory_bytes - self.measured.memory_bytes


def as_measured(configuration: Configuration) -> Offer:
    """A configuration as a candidate, at the accumulation that it was measured with."""
    return Offer(configuration=configuration, measured=configuration)


def candidates(
    configurations: Iterable[Configuration], effective_batch: int | None = None
) -> tuple[Offer, ...]:
    """What can serve ``effective_batch`` (None: every configuration as it was measured), with wrong
    losses, too. Another batch serves if its micro-batch divides the one asked for, if the gradients
    that accumulation keeps can be counted, and if it was measured with less accumulation, because
    otherwise its speed would be no lower bound: of several the one with most."""
    listed = list(configurations)
    if effective_batch is None:
        return tuple(map(as_measured, listed))
    exact = [item for item in listed if item.effective_batch == effective_batch]
    # A configuration that was measured at this batch, with correct losses, needs no inference.
    taken = {key_of(item) for item in exact if not item.trains_wrongly}
    wrong = WrongAccumulations(listed)
    inferred: dict[Key, Offer] = {}
    # Most accumulation first: of each key only the nearest to the effective batch serves.
    for configuration in sorted(listed, key=attrgetter("accumulation"), reverse=True):
        key = key_of(configuration)
        if configuration.trains_wrongly or key in taken or key in inferred:
            continue
        candidate = _inferred(configuration, effective_batch)
        if candidate is not None and wrong.allow(configuration, candidate.accumulation):
            inferred[key] = wrong.suspected(candidate)
    return (*map(as_measured, exact), *inferred.values())


Key = tuple[Hashable, ...]
"""The environment, and every choice except the accumulation."""


def key_of(configuration: Configuration) -> Key:
    """A key that is equal for configurations that differ in their accumulation alone."""
    return configuration.micro_batch, *configuration.techniques


class WrongAccumulations:
    """What is known from rows that accumulate with a wrong loss."""

    def __init__(self, configurations: Iterable[Configuration]) -> None:
        self._broken: dict[Key, int] = {}
        """The least accumulation whose training is wrong by an unknown cause: no greater one is
        offered."""
        self._suspicions: dict[Choice, Flag] = {}
        """Loop -> a flag that says how wrong its accumulated loss is."""
        wrong = [own for own in configurations if own.accumulation > 1 and own.trains_wrongly]
        for own in sorted(wrong, key=attrgetter("accumulation")):
            for flag in own.loss_flags[:1]:
                suspicion = Flag(FlagKind.ACCUMULATION_SUSPECT, flag.value)
                self._suspicions.setdefault(own.choices.get("loop"), suspicion)
            # Losses that were only not divided by the accumulation have a wrong scale alone.
            if {flag.kind for flag in own.loss_flags} != {FlagKind.LOSS_TIMES_ACCUMULATION}:
                self._broken.setdefault(key_of(own), own.accumulation)

    def allow(self, configuration: Configuration, accumulation: int) -> bool:
        """Whether, up to this accumulation, the losses had at most a wrong scale."""
        return accumulation <= 1 or accumulation < self._broken.get(key_of(configuration), math.inf)

    def suspected(self, offer: Offer) -> Offer:
        """An offer with the flag of its loop, if it accumulates."""
        loop = offer.configuration.choices.get("loop")
        return replace(
            offer, suspicion=self._suspicions.get(loop) if offer.accumulation > 1 else None
        )


def _inferred(configuration: Configuration, effective_batch: int) -> Offer | None:
    """The configuration at more accumulation; None if its memory or speed is not known."""
    samples = configuration.micro_batch * configuration.gpus
    accumulation, rest = divmod(effective_batch, samples)
    # Without accumulation a step frees its gradients; with it, they are kept between passes.
    kept_bytes = configuration.gradient_bytes if configuration.accumulation == 1 else 0
    if rest or accumulation <= configuration.accumulation or kept_bytes is None:
        return None
    expected = at_batch(configuration, configuration.micro_batch, accumulation)
    memory_bytes = configuration.memory_bytes + kept_bytes
    return Offer(configuration=replace(expected, memory_bytes=memory_bytes), measured=configuration)


def at_batch(configuration: Configuration, micro_batch: int, accumulation: int) -> Configuration:
    """A configuration with its own figures at another batch."""
    batch = {"micro_batch": micro_batch, "accumulation": accumulation}
    effective_batch = micro_batch * accumulation * configuration.gpus
    return replace(
        configuration,
        choices={**configuration.choices, **batch},
        row={**configuration.row, **batch, "effective_batch": effective_batch},
    )
