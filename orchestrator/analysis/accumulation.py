"""Candidates for an effective batch: measured at it, or inferred from a measurement with less
accumulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.flags import Flag, FlagKind
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A configuration that one could train with, and how its figures are known."""

    configuration: Configuration
    """With figures to count on.

    Where inferred: a lower bound of the speed, an upper bound of the memory.
    """
    measured: Configuration
    """As measured; the same object unless inferred."""
    accumulation: int

    @property
    def is_inferred(self) -> bool:
        """Whether this very accumulation was not measured."""
        return self.configuration is not self.measured

    @property
    def extra_bytes(self) -> int:
        """Memory that the inference adds: gradients that are kept between passes."""
        return self.configuration.memory_bytes - self.measured.memory_bytes


def candidates(
    configurations: Iterable[Configuration], effective_batch: int | None = None
) -> tuple[Candidate, ...]:
    """What can serve ``effective_batch`` (None: every configuration as it was measured).

    A configuration with another effective batch serves if its micro-batch divides the one asked
    for, if it was measured with less accumulation (more would promise too much speed), and if the
    gradients that accumulation keeps can be counted. Of several that serve, the one with most
    accumulation is nearest and stands for them.
    """
    listed = list(configurations)
    if effective_batch is None:
        return tuple(_as_measured(own) for own in listed)
    exact = [own for own in listed if own.effective_batch == effective_batch]
    taken = {_without_accumulation(own) for own in exact}
    suspects = _suspect_loops(listed)
    nearest: dict[tuple[object, ...], Candidate] = {}
    for own in sorted(listed, key=_accumulation):
        key = _without_accumulation(own)
        inferred = None if key in taken else _inferred(own, effective_batch)
        if inferred is not None:
            nearest[key] = _with_suspicion(inferred, suspects)
    return (*(_as_measured(own) for own in exact), *nearest.values())


def _as_measured(configuration: Configuration) -> Candidate:
    accumulation = configuration.row["accumulation"]
    return Candidate(configuration=configuration, measured=configuration, accumulation=accumulation)


def _accumulation(configuration: Configuration) -> int:
    return configuration.row["accumulation"] or 0


def _without_accumulation(configuration: Configuration) -> tuple[object, ...]:
    others = {
        axis: choice for axis, choice in configuration.choices.items() if axis != "accumulation"
    }
    return configuration.environment_id, *others.items()


def _suspect_loops(configurations: Iterable[Configuration]) -> dict[Choice, Flag]:
    """Loop -> a flag for its accumulation, because an accumulated row of it has other losses than
    its reference.
    """
    suspects: dict[Choice, Flag] = {}
    for own in configurations:
        if _accumulation(own) > 1 and own.loss_flags:
            ratio = own.loss_flags[0].value
            flag = Flag(FlagKind.ACCUMULATION_SUSPECT, ratio)
            suspects.setdefault(own.choices.get("loop"), flag)
    return suspects


def _with_suspicion(candidate: Candidate, suspects: dict[Choice, Flag]) -> Candidate:
    suspicion = suspects.get(candidate.configuration.choices.get("loop"))
    if suspicion is None:
        return candidate
    flags = (*candidate.configuration.flags, suspicion)
    suspected = replace(candidate.configuration, flags=tuple(dict.fromkeys(flags)))
    return replace(candidate, configuration=suspected)


def _inferred(configuration: Configuration, effective_batch: int) -> Candidate | None:
    micro_batch = configuration.row["micro_batch"]
    measured_accumulation = configuration.row["accumulation"]
    accumulation, rest = divmod(effective_batch, micro_batch)
    if rest or accumulation <= measured_accumulation:
        return None
    # Without accumulation a step frees its gradients; with it, they are kept between passes.
    kept = gradient_bytes(configuration) if measured_accumulation == 1 else 0
    if kept is None:
        return None
    promised = replace(
        configuration,
        choices={**configuration.choices, "accumulation": accumulation},
        memory_bytes=configuration.memory_bytes + kept,
    )
    return Candidate(configuration=promised, measured=configuration, accumulation=accumulation)


def gradient_bytes(configuration: Configuration) -> int | None:
    """Bytes of gradients that are kept between passes: trained parameters in their own format; None
    where unknown.

    DeepSpeed accumulates in 32 bits, whatever its weights are.
    """
    row = configuration.row
    count = row.get("parameters_trainable")
    named = str(row.get("parameter_dtypes") or "")
    sizes = [size for dtype, size in _BYTES.items() if dtype in named]
    if count is None or not sizes:
        return None
    uses_zero = row.get("zero_stage") is not None
    return int(count) * (4 if uses_zero else max(sizes))
