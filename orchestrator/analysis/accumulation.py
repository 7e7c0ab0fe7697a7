"""Candidates for an effective batch: measured at this batch, or inferred from a smaller one.

A row may accumulate with a loss of the wrong scale. Such a row trained something else than its
reference, so it is no candidate. Its memory and speed are still right, because the scale of a loss
changes no kernel. The same micro-batch may also have been measured with less accumulation and
correct losses. Then a candidate is inferred: it trains like that correct row, and its memory and
speed are those of the row with the wrong loss.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from jobs.flags import Flag, FlagKind
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration, gradient_bytes


class Basis(enum.StrEnum):
    """How the figures of a candidate are known."""

    MEASURED = "measured"
    """This very configuration was measured."""
    LESS_ACCUMULATION = "less accumulation"
    """It was measured with less accumulation.

    The measured speed is a lower bound. The measured memory, plus the gradients that accumulation
    keeps, is an upper bound.
    """
    WRONG_LOSS_SCALE = "wrong loss scale"
    """Two trials were combined.

    A trial with less accumulation shows that the losses are right. A trial with more accumulation,
    whose loss has the wrong scale, shows the memory and the speed.
    """
    BETWEEN = "between"
    """A smaller and a larger micro-batch were measured.

    They give a lower bound of the speed, and an upper bound of the memory.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A configuration that one could train with, and how its figures are known."""

    configuration: Configuration
    """The choices to train with, and the memory and speed to expect."""
    measured: Configuration
    """The measured configuration. The same object as ``configuration``, unless that is inferred.

    Its losses count as the candidate's losses.
    """
    accumulation: int
    basis: Basis = Basis.MEASURED
    evidence: Configuration | None = None
    """The second measured configuration behind the figures.

    For ``Basis.WRONG_LOSS_SCALE`` it has the wrong loss. For ``Basis.BETWEEN`` it has the larger
    micro-batch.
    """
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
            return accumulation_of(self.evidence) != self.accumulation
        return self.is_inferred

    @property
    def micro_batch(self) -> int:
        """Samples of one pass."""
        return int(self.effective_batch // self.accumulation)

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.configuration.effective_batch

    @property
    def extra_bytes(self) -> int:
        """Memory that the inference adds: gradients that are kept between passes."""
        return self.configuration.memory_bytes - self.measured.memory_bytes


Key = tuple[Hashable, ...]
"""The environment, and every choice except the accumulation."""


def candidates(
    configurations: Iterable[Configuration], effective_batch: int | None = None
) -> tuple[Candidate, ...]:
    """What can serve ``effective_batch`` (None: every configuration as it was measured).

    A configuration with another effective batch serves under three conditions:

    - Its micro-batch divides the effective batch asked for.
    - It was measured with less accumulation. With more, its speed would be no lower bound.
    - The gradients that accumulation keeps can be counted.

    If several configurations differ in accumulation alone, the one with most accumulation serves.

    The measured candidates include those whose losses contradict their reference, so that an answer
    can say what it leaves out. Nothing is inferred from the losses of such a candidate.
    """
    listed = list(configurations)
    if effective_batch is None:
        return tuple(map(as_measured, listed))
    exact = [item for item in listed if item.effective_batch == effective_batch]
    # A configuration that was measured at this batch, with correct losses, needs no inference.
    taken = {key_of(item) for item in exact if not item.trains_wrongly}
    return (*map(as_measured, exact), *_nearest_inferred(listed, effective_batch, taken))


def _nearest_inferred(
    configurations: Sequence[Configuration], effective_batch: int, taken: Collection[Key]
) -> list[Candidate]:
    """One inferred candidate for each key that is not ``taken``."""
    recorded = WrongAccumulations.of(configurations, effective_batch)
    nearest: dict[Key, Candidate] = {}
    # Most accumulation first. It is nearest to the effective batch, so only the first configuration
    # of each key is inferred from.
    for configuration in sorted(configurations, key=accumulation_of, reverse=True):
        if configuration.trains_wrongly or not _can_accumulate(configuration, effective_batch):
            continue
        key = key_of(configuration)
        if key in taken or key in nearest:
            continue
        candidate = recorded.inferred(configuration, effective_batch)
        if candidate is not None:
            nearest[key] = candidate
    return list(nearest.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongAccumulations:
    """What is known from rows that accumulate with a wrong loss."""

    evidence: Mapping[Key, Configuration]
    """The rows whose loss has only a wrong scale. Their memory and speed are right."""
    broken: Mapping[Key, int]
    """The least accumulation whose losses are wrong by more than a constant factor."""
    suspicions: Mapping[Choice, Flag]
    """Loop -> a flag that says how wrong its accumulated loss is."""

    @classmethod
    def of(cls, configurations: Sequence[Configuration], effective_batch: int) -> Self:
        """From the rows of a run. Figures come from rows up to ``effective_batch`` only."""
        evidence: dict[Key, Configuration] = {}
        broken: dict[Key, int] = {}
        suspicions: dict[Choice, Flag] = {}
        for configuration in _accumulated_wrongly(configurations):
            flag = Flag(FlagKind.ACCUMULATION_SUSPECT, configuration.loss_flags[0].value)
            suspicions.setdefault(configuration.choices.get("loop"), flag)
            if not configuration.is_wrong_by_scale_alone:
                broken.setdefault(key_of(configuration), accumulation_of(configuration))
            elif configuration.effective_batch <= effective_batch:
                # Rows come in order of accumulation, so the row with most accumulation is kept.
                evidence[key_of(configuration)] = configuration
        return cls(evidence=evidence, broken=broken, suspicions=suspicions)

    def inferred(self, configuration: Configuration, effective_batch: int) -> Candidate | None:
        """A configuration at more accumulation; None if its training or figures are not known.

        If more than the scale of its accumulated losses was wrong, the cause is not known. Then no
        greater accumulation is offered.
        """
        evidence = self.evidence.get(key_of(configuration))
        candidate = _inferred(configuration, effective_batch, evidence)
        if candidate is None or not self.allows(configuration, candidate.accumulation):
            return None
        return self.with_suspicion(candidate)

    def allows(self, configuration: Configuration, accumulation: int) -> bool:
        """Whether, up to this accumulation, the losses had at most a wrong scale."""
        limit = self.broken.get(key_of(configuration))
        return accumulation <= 1 or limit is None or accumulation < limit

    def with_suspicion(self, candidate: Candidate) -> Candidate:
        """The candidate, with the flag of its loop if it accumulates."""
        if candidate.accumulation <= 1:
            return candidate
        suspicion = self.suspicions.get(candidate.configuration.choices.get("loop"))
        return replace(candidate, suspicion=suspicion)


def _accumulated_wrongly(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Those that accumulate and have wrong losses, least accumulation first."""
    wrong = []
    for configuration in sorted(configurations, key=accumulation_of):
        if configuration.trains_wrongly and accumulation_of(configuration) > 1:
            wrong.append(configuration)
    return wrong


def as_measured(configuration: Configuration) -> Candidate:
    """A configuration as a candidate, at the accumulation that it was measured with."""
    accumulation = configuration.row["accumulation"]
    return Candidate(configuration=configuration, measured=configuration, accumulation=accumulation)


def accumulation_of(configuration: Configuration) -> int:
    """Passes per optimizer step; 0 if the table does not have it."""
    return configuration.row["accumulation"] or 0


def key_of(configuration: Configuration) -> Key:
    """A key that is equal for configurations that differ in their accumulation alone."""
    key: list[Hashable] = [configuration.environment_id, configuration.row["micro_batch"]]
    for axis, choice in configuration.choices.items():
        if axis != "accumulation":
            key.append((axis, choice))
    return tuple(key)


def _can_accumulate(configuration: Configuration, effective_batch: int) -> bool:
    """Whether the effective batch is a whole number of passes, and more than were measured."""
    accumulation, rest = divmod(effective_batch, configuration.row["micro_batch"])
    return rest == 0 and bool(accumulation > configuration.row["accumulation"])


def _inferred(
    configuration: Configuration, effective_batch: int, evidence: Configuration | None
) -> Candidate | None:
    """The configuration at more accumulation.

    None if the accumulation is no whole number, or not more than was measured. Also None if the
    gradients that accumulation keeps cannot be counted.
    """
    if not _can_accumulate(configuration, effective_batch):
        return None
    micro_batch = configuration.row["micro_batch"]
    measured_accumulation = configuration.row["accumulation"]
    # A whole number of passes in an optimizer step, by the check above.
    accumulation = effective_batch // micro_batch
    # Measured memory and speed are better than inferred ones, even from a row with a wrong loss.
    if evidence is not None and accumulation_of(evidence) > measured_accumulation:
        return _with_evidence(configuration, accumulation, evidence)
    # Without accumulation a step frees its gradients; with it, they are kept between passes.
    memory_bytes = configuration.memory_bytes
    if measured_accumulation == 1:
        gradients = gradient_bytes(configuration)
        if gradients is None:
            return None
        memory_bytes += gradients
    expected = at_batch(configuration, micro_batch, accumulation, memory_bytes)
    return Candidate(
        configuration=expected,
        measured=configuration,
        accumulation=accumulation,
        basis=Basis.LESS_ACCUMULATION,
    )


def _with_evidence(
    configuration: Configuration, accumulation: int, evidence: Configuration
) -> Candidate:
    """The configuration at more accumulation, with the figures of a row with a wrong loss."""
    micro_batch = configuration.row["micro_batch"]
    expected = at_batch(configuration, micro_batch, accumulation, evidence.memory_bytes)
    expected = replace(
        expected,
        samples_per_second=evidence.samples_per_second,
        speed_error=evidence.speed_error,
    )
    return Candidate(
        configuration=expected,
        measured=configuration,
        accumulation=accumulation,
        basis=Basis.WRONG_LOSS_SCALE,
        evidence=evidence,
    )


def at_batch(
    configuration: Configuration, micro_batch: int, accumulation: int, memory_bytes: int
) -> Configuration:
    """A configuration at another batch, with this memory and its own speed.

    Its row keeps all measured columns. Only the columns of the batch change.
    """
    batch = {"micro_batch": micro_batch, "accumulation": accumulation}
    return replace(
        configuration,
        choices={**configuration.choices, **batch},
        row={**configuration.row, **batch, "effective_batch": micro_batch * accumulation},
        memory_bytes=memory_bytes,
    )
