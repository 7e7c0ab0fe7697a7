"""An optimizer's step under DeepSpeed's engine, which hands it flat parts of all parameters."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from jobs.spec import TrialSpec
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.tracing.cpu_arguments import cpu_arguments
from orchestrator.prediction.tracing.fakes.fake_libraries import leave_out_host_states
from orchestrator.prediction.tracing.fakes.fake_update import Updates, made_optimizer, take_step
from orchestrator.prediction.zero import ZeroEngine

_Part = tuple[dict[str, Any], list[torch.nn.Parameter]]
"""A group of an optimizer's parameters, and those in 32 bits that are updated in their place."""


class EngineStep:
    """The update of this rank, as ``step`` of stage_1_and_2.py, of stage3.py (both in
    deepspeed/runtime/zero) and of deepspeed/runtime/fp16/unfused_optimizer.py has it."""

    def __init__(self, model: torch.nn.Module, spec: TrialSpec) -> None:
        self.engine = ZeroEngine.of(spec, model)
        trained = [own for own in model.parameters() if own.requires_grad]
        self._dtype = trained[0].dtype
        self._partition = sum(own.numel() for own in trained) // self.engine.ranks
        self.optimizer: Any = made_optimizer(model, _with_its_own(spec), cpu_arguments(spec))
        groups = [own for own in self.optimizer.param_groups if own["params"]]
        if self.engine.stage == 0:
            self._turns: list[list[_Part]] = [[(own, _in_32_bits(own["params"])) for own in groups]]
        else:
            self._turns = [[(own, [part])] for own in groups for part in self._flat(own["params"])]

    def _flat(self, parameters: Sequence[torch.Tensor]) -> Iterator[torch.nn.Parameter]:
        left = sum(own.numel() for own in parameters) // self.engine.ranks
        most = self.engine.sub_group_elements if self.engine.stage == 3 else left
        for begin in range(0, left, max(1, most)):
            yield torch.nn.Parameter(torch.empty(min(most, left - begin)))

    def run(self) -> None:
        # Stages 1 and 2 drop the gradients of this rank when all are copied.
        gradients = [
            torch.empty(self._partition * (self.engine.stage in (1, 2)), dtype=self._dtype)
        ]
        for turn in self._turns:
            for group, parts in turn:
                group["params"] = parts
                for part in parts:
                    part.grad = self._gradient(part)
            if turn is self._turns[-1]:
                gradients.clear()
            self.optimizer.param_groups = [group for group, _ in turn]
            take_step(self.optimizer)
            for _, parts in turn:
                for part in parts:
                    part.grad = None

    def _gradient(self, part: torch.Tensor) -> torch.Tensor:
        """In 32 bits, of a flat copy; without sharding, of the gradient itself."""
        if self.engine.stage == 0:
            return torch.empty_like(part)
        return torch.empty(part.shape, dtype=self._dtype).to(part.dtype)


def engine_updates(
    model: torch.nn.Module, spec: TrialSpec, recorder: AllocationRecorder
) -> Updates:
    step = EngineStep(model, spec)
    recorder.stream()
    with recorder.phase("update"):
        step.run()
    paged = leave_out_host_states(step.optimizer, recorder)
    first = recorder.stream()
    # The second update finds the states of the first.
    with recorder.phase("update"):
        step.run()
    later = recorder.stream()
    if step.engine.optimizer_on_host:
        # Where the states are, the update runs, too.
        return Updates(first=replace(first, events=()), later=replace(later, events=()), paged=())
    return Updates(first=first, later=later, paged=tuple(paged))


def _in_32_bits(parameters: Sequence[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.empty_like(own, dtype=torch.float32)) for own in parameters]


def _with_its_own(spec: TrialSpec) -> TrialSpec:
    """With PyTorch's fused AdamW in place of DeepSpeed's, which has the same states, if the
    engine's configuration asks for one."""
    settings = spec.settings
    if not (settings.deepspeed or {}).get("optimizer"):
        return spec
    arguments = {**settings.training_arguments, "optim": "adamw_torch_fused"}
    return replace(spec, settings=replace(settings, training_arguments=arguments))
