"""The activations that a compiler saves of a model's layers, from its partition of one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.unsupported import has_packed_base, triton_libraries

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.compiled_block import CompiledBlock


@dataclass(frozen=True, slots=True)
class CompiledMemory:
    """Of trials that share traces."""

    group: ModelGroup
    _blocks: dict[int, CompiledBlock] = field(default_factory=dict)
    """By micro-batch."""

    def kept(self, spec: TrialSpec) -> float:
        """Share of the activations that are saved without compiling; 1 if that is not known."""
        simpler = traceable(spec).spec
        # A packed base is no input of a graph, and kernels of triton are none of its operators.
        if has_packed_base(simpler) or triton_libraries(spec):
            return 1.0
        if simpler.settings.training_arguments.get("gradient_checkpointing"):
            return 1.0  # of a checkpointed block only the inputs are kept, compiled or not
        partitioner = spec.settings.hooks.get("partitioner")
        budget = 1.0 if partitioner is None else float(partitioner.arguments["budget"])
        # As between traces, sizes are affine in the micro-batch.
        low, high = self.group.affine[0], self.group.affine[-1]
        try:
            saved = self.group.first(simpler).saved_bytes
            layers = int(getattr(self.group.step.model.config, "num_hidden_layers", 1))
            least, most = (self._of_block(size, budget) for size in (low, high))
        except Exception:  # a layer may hold what no partition takes
            return 1.0
        position = (spec.micro_batch - low) / (high - low) if high > low else 0.0
        return max(1.0, least + (most - least) * position) * layers / max(1, saved)

    def _of_block(self, samples: int, budget: float) -> int:
        from orchestrator.prediction.tracing.compiled_block import compiled_block

        if samples not in self._blocks:
            step = self.group.step
            batch = step.batches.worst(samples)
            block = compiled_block(step.shallow, batch, self.group.shared.blocks)
            self._blocks[samples] = block
        return self._blocks[samples].saved_bytes(budget)
