"""The activations that a compiler saves of a model's layers, from its partition of one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.unsupported import has_packed_base

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.compiled_block import CompiledBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledMemory:
    """Of trials that share traces."""

    few: ModelGroup
    more: ModelGroup
    layers: int
    """How many more layers ``more`` has than ``few``; if both are the same, how many it has."""
    _blocks: dict[int, CompiledBlock] = field(default_factory=dict)
    """By micro-batch."""

    def kept(self, spec: TrialSpec) -> float:
        """Share of the activations that are saved without compiling; 1 if that is not known."""
        simpler = traceable(spec).spec
        if has_packed_base(simpler):  # its state is no input of a graph
            return 1.0
        saved = self.more.first(simpler).saved_bytes
        if self.few is not self.more:
            saved -= self.few.first(simpler).saved_bytes
        partitioner = spec.settings.hooks.get("partitioner")
        budget = 1.0 if partitioner is None else float(partitioner.arguments["budget"])
        # As between traces, sizes are affine in the micro-batch.
        low, high = self.few.affine[0], self.few.affine[-1]
        try:
            least, most = (self._of_block(size, budget) for size in (low, high))
        except Exception:  # a layer may hold what no partition takes
            return 1.0
        position = (spec.micro_batch - low) / (high - low) if high > low else 0.0
        return max(1.0, least + (most - least) * position) * self.layers / max(1, saved)

    def _of_block(self, samples: int, budget: float) -> int:
        from orchestrator.prediction.tracing.compiled_block import compiled_block

        if samples not in self._blocks:
            step = self.few.step
            block = compiled_block(step, step.batches.worst(samples), self.few.shared.blocks)
            self._blocks[samples] = block
        return self._blocks[samples].saved_bytes(budget)
