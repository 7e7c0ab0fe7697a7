"""The kernels of a step, from the traced parts that it repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.spec import TrialSpec, to_json
from orchestrator.prediction.time.fusion import fused
from orchestrator.prediction.time.operations import Operation, StepWork, Work

UPDATE_ARGUMENTS = ("optim", "optim_args", "max_grad_norm", "learning_rate", "weight_decay")
"""Training arguments of the optimizer's step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartWork:
    """The kernels of a part of a step: of a micro-batch, or of an update."""

    eager: Work = field(default_factory=Work)
    compiled: Work = field(default_factory=Work)
    """The same part if it is compiled."""
    forward: Work = field(default_factory=Work)
    """The products of its forward pass, without those of the loss."""
    unwritten: Mapping[int, Iterable[int]] = field(default_factory=dict)
    """Storage that is in no memory if it is compiled -> those from which it is computed."""

    @classmethod
    def of(cls, operations: Sequence[Operation], kept: Iterable[int]) -> PartWork:
        """``kept`` are storages that outlive the part."""
        kernels, unwritten = fused(operations, kept)
        return cls(
            eager=Work.of(operations),
            compiled=Work.of(kernels),
            forward=Work.of(_of_blocks(operations)),
            unwritten={number: tuple(own) for number, own in unwritten.items()},
        )

    def __mul__(self, times: float) -> PartWork:
        """The same, run so many times."""
        return PartWork(
            eager=self.eager * times, compiled=self.compiled * times, forward=self.forward * times
        )

    def __add__(self, other: PartWork) -> PartWork:
        return PartWork(
            eager=self.eager + other.eager,
            compiled=self.compiled + other.compiled,
            forward=self.forward + other.forward,
        )

    def deepened(self, less: PartWork, times: float, renumbered: Callable[[int], int]) -> PartWork:
        """As ``Work.deepened``, with the storages' numbers in the deeper model."""
        return PartWork(
            eager=self.eager.deepened(less.eager, times),
            compiled=self.compiled.deepened(less.compiled, times),
            forward=self.forward.deepened(less.forward, times),
            unwritten={
                renumbered(number): tuple(map(renumbered, own))
                for number, own in self.unwritten.items()
            },
        )

    def seeing(self, share: float) -> PartWork:
        """The same positions in rows of this share of the length."""
        return replace(self, eager=self.eager.seeing(share), compiled=self.compiled.seeing(share))

    def towards(self, high: PartWork, position: float) -> PartWork:
        """As ``Work.towards``. Of other kernels, as more tiles of a loss, each side has a share."""
        if not self.eager.has_kernels_of(high.eager):
            return self * (1 - position) + high * position
        return replace(
            self,
            eager=self.eager.towards(high.eager, position),
            compiled=self.compiled.towards(high.compiled, position),
            forward=self.forward.towards(high.forward, position),
        )


def _of_blocks(operations: Sequence[Operation]) -> list[Operation]:
    """The forward products that compiled blocks may repeat. What first appears behind the last
    attention is of the loss, which is not compiled with a block."""
    forward = [own for own in operations if own.phase == "forward"]
    attention = [number for number, own in enumerate(forward) if own.is_attention]
    before = {own.sizes for own in forward[: max(attention, default=len(forward))]}
    return [own for own in forward if own.is_product and own.sizes in before]


def step_of(
    spec: TrialSpec, first: PartWork, later: PartWork | None, update: Work, tokens: float
) -> StepWork:
    """``first`` is a step's first micro-batch, and ``later`` any other one; both have ``tokens`` in
    a row."""
    share = repeated_share(spec)
    eager = first.eager + update
    compiled = first.compiled + first.forward * share + update
    if later is not None:
        eager += later.eager * (spec.accumulation - 1)
        compiled += (later.compiled + first.forward * share) * (spec.accumulation - 1)
    return StepWork(
        eager=eager,
        compiled=compiled,
        samples=spec.effective_batch,
        tokens=round(spec.effective_batch * tokens),
        formats=formats(spec),
    )


def formats(spec: TrialSpec) -> dict[str, str]:
    """Number format of a trace -> the one that computes."""
    return {"fp32": "tf32"} if spec.settings.training_arguments.get("tf32") else {}


def repeated_share(spec: TrialSpec) -> float:
    """Share of the forward products that compiled code repeats to keep a budget of activations.

    The partition repeats what costs least for its bytes first. If the cost of the next byte rises
    evenly, what is repeated grows with the square of the share that is not kept.
    """
    partitioner = spec.settings.hooks.get("partitioner")
    return 0.0 if partitioner is None else float(1 - partitioner.arguments["budget"]) ** 2


def update_key(spec: TrialSpec) -> str:
    """Equal for trials of a model with the same update."""
    given = spec.settings.training_arguments
    arguments = {name: given[name] for name in UPDATE_ARGUMENTS if name in given}
    hook = to_json(spec.settings.hooks.get("optimizer"))
    return json.dumps([arguments, hook], sort_keys=True)
