"""Candidates for an effective batch: measured at it, or inferred from what was measured near it.

A recorded row that accumulates with a loss of the wrong scale is no candidate: it trained something
else than its reference. Its memory and speed are those of the right training all the same, because
the scale of a loss changes no kernel. Where its micro-batch was measured without accumulation and
its losses do not speak against it, that row's training is inferred for more accumulation, and the
wrong row is evidence for the figures.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from jobs.flags import Flag, FlagKind
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Format of a parameter -> bytes of each."""


class Basis(enum.StrEnum):
    """How the figures of a candidate are known."""

    MEASURED = "measured"
    """This very configuration was measured."""
    LESS_ACCUMULATION = "less accumulation"
    """It was measured with less accumulation: a lower bound of the speed, an upper bound of the
    memory.
    """
    WRONG_LOSS_SCALE = "wrong loss scale"
    """As before, but another trial measured memory and speed with more accumulation, its loss
    scaled wrongly.
    """
    BETWEEN = "between"
    """A smaller and a larger micro-batch were measured: a lower bound of the speed, an upper bound
    of the memory.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A configuration that one could train with, and how its figures are known."""

    configuration: Configuration
    """With figures to count on; its choices are those to train with."""
    measured: Configuration
    """As measured; the same object unless inferred. Its losses stand for the candidate's."""
    accumulation: int
    basis: Basis = Basis.MEASURED
    evidence: Configuration | None = None
    """The trial behind ``Basis.WRONG_LOSS_SCALE``, or the larger micro-batch of
    ``Basis.BETWEEN``.
    """
    suspicion: Flag | None = None
    """Where another row of the same loop accumulates with a wrong loss: how wrong it was."""

    @property
    def is_inferred(self) -> bool:
        """Whether this very accumulation was not measured, or not with the right loss."""
        return self.configuration is not self.measured

    @property
    def has_bounds(self) -> bool:
        """Whether its figures are bounds: at least this speed, at most this memory."""
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
"""Everything that is chosen but the accumulation, and the environment."""


def candidates(
    configurations: Iterable[Configuration], effective_batch: int | None = None
) -> tuple[Candidate, ...]:
    """What can serve ``effective_batch`` (None: every configuration as it was measured).

    A configuration with another effective batch serves if its micro-batch divides the one asked
    for, if it was measured with less accumulation (more would promise too much speed), and if the
    gradients that accumulation keeps can be counted. Of several that serve, the one with most
    accumulation is nearest and stands for them.

    Configurations whose losses contradict their reference are among the measured candidates, so
    that an answer can name what it leaves out; nothing is inferred from their training.
    """
    listed = list(configurations)
    if effective_batch is None:
        return tuple(map(as_measured, listed))
    exact = [own for own in listed if own.effective_batch == effective_batch]
    # What was measured right at this batch needs no inference.
    taken = {key_of(own) for own in exact if not own.trains_wrongly}
    recorded = WrongAccumulations.of(listed, effective_batch)
    nearest: dict[Key, Candidate] = {}
    # Most accumulation first: of those that serve, it is nearest, so the others need no inference.
    for configuration in sorted(listed, key=accumulation_of, reverse=True):
        if configuration.trains_wrongly or not _can_accumulate(configuration, effective_batch):
            continue
        key = key_of(configuration)
        if key in taken or key in nearest:
            continue
        candidate = recorded.inferred(configuration, effective_batch)
        if candidate is not None:
            nearest[key] = candidate
    return (*map(as_measured, exact), *nearest.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongAccumulations:
    """What recorded rows say that accumulate with a wrong loss."""

    evidence: Mapping[Key, Configuration]
    """The rows whose loss is too large by their accumulation alone: their memory and speed count.
    """
    broken: Mapping[Key, int]
    """The least accumulation at which the losses are wrong by more than their scale."""
    suspicions: Mapping[Choice, Flag]
    """Loop -> a flag for its accumulation."""

    @classmethod
    def of(cls, configurations: Sequence[Configuration], effective_batch: int) -> Self:
        """What the rows up to an effective batch say."""
        evidence: dict[Key, Configuration] = {}
        broken: dict[Key, int] = {}
        suspicions: dict[Choice, Flag] = {}
        for configuration in sorted(configurations, key=accumulation_of):
            if not configuration.trains_wrongly or accumulation_of(configuration) <= 1:
                continue
            flag = Flag(FlagKind.ACCUMULATION_SUSPECT, configuration.loss_flags[0].value)
            suspicions.setdefault(configuration.choices.get("loop"), flag)
            if not _is_scale_alone(configuration):
                broken.setdefault(key_of(configuration), accumulation_of(configuration))
            elif configuration.effective_batch <= effective_batch:
                # The last one stays: the most accumulation is nearest.
                evidence[key_of(configuration)] = configuration
        return cls(evidence=evidence, broken=broken, suspicions=suspicions)

    def inferred(self, configuration: Configuration, effective_batch: int) -> Candidate | None:
        """A configuration at more accumulation; None where its training or figures are not known.

        Where its losses were wrong by more than their scale, the cause is not known, so more
        accumulation is not promised to train correctly.
        """
        evidence = self.evidence.get(key_of(configuration))
        candidate = _inferred(configuration, effective_batch, evidence)
        if candidate is None or not self.allows(configuration, candidate.accumulation):
            return None
        return self.with_suspicion(candidate)

    def allows(self, configuration: Configuration, accumulation: int) -> bool:
        """Whether no row at this accumulation or less had losses wrong by more than their scale."""
        limit = self.broken.get(key_of(configuration))
        return accumulation <= 1 or limit is None or accumulation < limit

    def with_suspicion(self, candidate: Candidate) -> Candidate:
        """A candidate with what its loop's accumulated rows say, if it accumulates."""
        if candidate.accumulation <= 1:
            return candidate
        suspicion = self.suspicions.get(candidate.configuration.choices.get("loop"))
        return replace(candidate, suspicion=suspicion)


def _is_scale_alone(configuration: Configuration) -> bool:
    """Whether nothing but the accumulation makes the loss too large."""
    kinds = {flag.kind for flag in configuration.loss_flags}
    return kinds == {FlagKind.LOSS_TIMES_ACCUMULATION}


def as_measured(configuration: Configuration) -> Candidate:
    """A configuration as a candidate, at the accumulation that it was measured with."""
    accumulation = configuration.row["accumulation"]
    return Candidate(configuration=configuration, measured=configuration, accumulation=accumulation)


def accumulation_of(configuration: Configuration) -> int:
    """Passes per optimizer step; 0 where a table does not say."""
    return configuration.row["accumulation"] or 0


def key_of(configuration: Configuration) -> Key:
    """What configurations have in common that differ in their accumulation alone."""
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

    None where that is no whole number, or where the gradients that it keeps cannot be counted.
    """
    if not _can_accumulate(configuration, effective_batch):
        return None
    micro_batch = configuration.row["micro_batch"]
    measured_accumulation = configuration.row["accumulation"]
    accumulation = effective_batch // micro_batch
    # Memory and speed that were measured are better known than inferred ones.
    if evidence is not None and accumulation_of(evidence) > measured_accumulation:
        return _with_evidence(configuration, accumulation, evidence)
    # Without accumulation a step frees its gradients; with it, they are kept between passes.
    kept = 0
    if measured_accumulation == 1:
        gradients = gradient_bytes(configuration)
        if gradients is None:
            return None
        kept = gradients
    promised = at_batch(configuration, micro_batch, accumulation, configuration.memory_bytes + kept)
    return Candidate(
        configuration=promised,
        measured=configuration,
        accumulation=accumulation,
        basis=Basis.LESS_ACCUMULATION,
    )


def _with_evidence(
    configuration: Configuration, accumulation: int, evidence: Configuration
) -> Candidate:
    """The configuration's training with the figures of a row that scaled its loss wrongly."""
    micro_batch = configuration.row["micro_batch"]
    promised = at_batch(configuration, micro_batch, accumulation, evidence.memory_bytes)
    promised = replace(
        promised,
        samples_per_second=evidence.samples_per_second,
        speed_error=evidence.speed_error,
    )
    return Candidate(
        configuration=promised,
        measured=configuration,
        accumulation=accumulation,
        basis=Basis.WRONG_LOSS_SCALE,
        evidence=evidence,
    )


def at_batch(
    configuration: Configuration, micro_batch: int, accumulation: int, memory_bytes: int
) -> Configuration:
    """A configuration at another batch, with this memory and its own speed.

    The row keeps what was measured; only the batch in it is the new one.
    """
    batch = {"micro_batch": micro_batch, "accumulation": accumulation}
    return replace(
        configuration,
        choices={**configuration.choices, **batch},
        row={**configuration.row, **batch, "effective_batch": micro_batch * accumulation},
        memory_bytes=memory_bytes,
    )


def gradient_bytes(configuration: Configuration) -> int | None:
    """Bytes of gradients that are kept between passes: trained parameters in their own format; None
    where unknown.

    DeepSpeed accumulates in 32 bits, whatever its weights are.
    """
    row = configuration.row
    count = row.get("parameters_trainable")
    named = str(row.get("parameter_dtypes") or "")
    sizes = [size for dtype, size in BYTES.items() if dtype in named]
    if count is None or not sizes:
        return None
    # Of several formats it is not known how many parameters have which: the widest is the bound.
    bytes_each = max(sizes)
    if row.get("zero_stage") is not None:
        bytes_each = BYTES["float32"]
    return int(count) * bytes_each
