"""Candidates for an effective batch: measured at this batch, or inferred from less accumulation.

A row may accumulate with a loss of the wrong scale. It trained something else than its reference,
so it is no candidate, but its memory and speed are right, because the scale of a loss changes no
kernel. If the same micro-batch was also measured with less accumulation and correct losses, a
candidate trains like that row, with the memory and speed of the row with the wrong loss.
"""

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Self

from jobs.flags import Flag, FlagKind
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration


class Basis(enum.StrEnum):
    """How the figures of a candidate are known."""

    MEASURED = "measured"
    LESS_ACCUMULATION = "less accumulation"
    """Its speed there is a lower bound, and its memory with the kept gradients an upper bound."""
    WRONG_LOSS_SCALE = "wrong loss scale"
    """A trial with less accumulation shows that the losses are right, and one with more, whose loss
    has the wrong scale, the memory and the speed."""
    BETWEEN = "between"
    """A smaller and a larger micro-batch bound the speed from below, and the memory from above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A candidate: a configuration that one could train with, and how its figures are known."""

    configuration: Configuration
    """The choices to train with, and the memory and speed to expect."""
    measured: Configuration
    """Whose losses count as the candidate's; ``configuration`` itself, unless it is inferred."""
    basis: Basis = Basis.MEASURED
    evidence: Configuration | None = None
    """The other one behind the figures: with the wrong loss, or with the larger micro-batch."""
    suspicion: Flag | None = None
    """Set if another row with the same loop accumulates wrongly: how wrong its loss is."""

    @property
    def is_inferred(self) -> bool:
        """Whether no trial measured this configuration, at this batch, with a right loss."""
        return self.configuration is not self.measured

    @property
    def has_bounds(self) -> bool:
        """Whether its figures are bounds: at least this speed, at most this memory."""
        # A row with a wrong loss has exact figures at its own accumulation, and bounds beyond it.
        if self.basis is Basis.WRONG_LOSS_SCALE and self.evidence is not None:
            return self.evidence.accumulation != self.accumulation
        return self.is_inferred

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
    recorded = WrongAccumulations.of(listed, effective_batch)
    inferred: dict[Key, Offer] = {}
    # Most accumulation first: of each key only the nearest to the effective batch serves.
    for configuration in sorted(listed, key=attrgetter("accumulation"), reverse=True):
        key = key_of(configuration)
        if configuration.trains_wrongly or key in taken or key in inferred:
            continue
        candidate = _inferred(configuration, effective_batch, recorded)
        if candidate is not None:
            inferred[key] = candidate
    return (*map(as_measured, exact), *inferred.values())


Key = tuple[Hashable, ...]
"""The environment, and every choice except the accumulation."""


def key_of(configuration: Configuration) -> Key:
    """A key that is equal for configurations that differ in their accumulation alone."""
    return configuration.micro_batch, *configuration.techniques


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongAccumulations:
    """What is known from rows that accumulate with a wrong loss."""

    evidence: Mapping[Key, Configuration]
    """The rows whose loss has only a wrong scale. Their memory and speed are right."""
    broken: Mapping[Key, int]
    """The least accumulation whose training is wrong by an unknown cause: no greater one is
    offered."""
    suspicions: Mapping[Choice, Flag]
    """Loop -> a flag that says how wrong its accumulated loss is."""

    @classmethod
    def of(cls, configurations: Sequence[Configuration], effective_batch: int) -> Self:
        """From the rows of a run. Figures come from rows up to ``effective_batch`` only."""
        evidence: dict[Key, Configuration] = {}
        broken: dict[Key, int] = {}
        suspicions: dict[Choice, Flag] = {}
        for configuration in sorted(configurations, key=attrgetter("accumulation")):
            if not configuration.trains_wrongly or configuration.accumulation <= 1:
                continue
            for wrong in configuration.loss_flags[:1]:
                flag = Flag(FlagKind.ACCUMULATION_SUSPECT, wrong.value)
                suspicions.setdefault(configuration.choices.get("loop"), flag)
            if not configuration.is_wrong_by_scale_alone:
                broken.setdefault(key_of(configuration), configuration.accumulation)
            elif configuration.effective_batch <= effective_batch:
                # Rows come in order of accumulation, so the row with most accumulation is kept.
                evidence[key_of(configuration)] = configuration
        return cls(evidence=evidence, broken=broken, suspicions=suspicions)

    def allow(self, configuration: Configuration, accumulation: int) -> bool:
        """Whether, up to this accumulation, the losses had at most a wrong scale."""
        limit = self.broken.get(key_of(configuration))
        return accumulation <= 1 or limit is None or accumulation < limit

    def suspicion(self, configuration: Configuration, accumulation: int) -> Flag | None:
        """The flag of the configuration's loop, if it accumulates."""
        return None if accumulation <= 1 else self.suspicions.get(configuration.choices.get("loop"))


def _inferred(
    configuration: Configuration, effective_batch: int, recorded: WrongAccumulations
) -> Offer | None:
    """The configuration at more accumulation; None if its training or figures are not known."""
    samples = configuration.micro_batch * configuration.gpus
    accumulation, rest = divmod(effective_batch, samples)
    is_more = accumulation > configuration.accumulation
    if rest or not is_more or not recorded.allow(configuration, accumulation):
        return None
    extra_bytes: int | None = 0
    evidence = recorded.evidence.get(key_of(configuration))
    # Measured memory and speed are better than inferred ones, even from a row with a wrong loss.
    if evidence is None or evidence.accumulation <= configuration.accumulation:
        evidence = None
        # Without accumulation a step frees its gradients; with it, they are kept between passes.
        if configuration.accumulation == 1:
            extra_bytes = configuration.gradient_bytes
    if extra_bytes is None:
        return None
    figures = evidence or configuration
    return Offer(
        configuration=replace(
            at_batch(configuration, configuration.micro_batch, accumulation),
            memory_bytes=figures.memory_bytes + extra_bytes,
            samples_per_second=figures.samples_per_second,
            speed_error=figures.speed_error,
        ),
        measured=configuration,
        basis=Basis.WRONG_LOSS_SCALE if evidence else Basis.LESS_ACCUMULATION,
        evidence=evidence,
        suspicion=recorded.suspicion(configuration, accumulation),
    )


def at_batch(configuration: Configuration, micro_batch: int, accumulation: int) -> Configuration:
    """A configuration with its own figures at another batch."""
    batch = {"micro_batch": micro_batch, "accumulation": accumulation}
    effective_batch = micro_batch * accumulation * configuration.gpus
    return replace(
        configuration,
        choices={**configuration.choices, **batch},
        row={**configuration.row, **batch, "effective_batch": effective_batch},
    )
