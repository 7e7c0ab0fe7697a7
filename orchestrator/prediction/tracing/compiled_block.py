"""What a compiler saves of the block that a model repeats, by PyTorch's own partition.

AOTAutograd traces both passes of the block as one graph, on tensors without data, and divides it:
what the backward pass reads is saved, or computed again. The budget of activations is its own, too.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch._functorch import config
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import detect_fake_mode
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.virtualized import V
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from jobs.techniques.axes.compile import repeated_blocks
from orchestrator.prediction.tracing.cpu_arguments import autocast_dtype
from orchestrator.prediction.tracing.cuda.cuda_attention import allowed_kernels
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.rows.batches import BatchShapes
from orchestrator.prediction.unsupported import is_fsdp


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledBlock:
    """Both passes of a block for one micro-batch, before they are divided."""

    joint: torch.fx.GraphModule
    given: Sequence[Any]
    """Values of the graph's inputs."""
    parameters: int
    """How many of the first inputs are parameters or buffers."""
    settings: dict[str, Any]
    """Arguments of the partition."""
    _saved: dict[float, int] = field(default_factory=dict)

    def saved_bytes(self, budget: float) -> int:
        """Bytes kept from the forward pass to the backward pass: activations, and the input, but
        neither parameters nor copies of them. ``budget``: ``activation_memory_budget``."""
        if budget not in self._saved:
            with config.patch(activation_memory_budget=budget), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what PyTorch's own copy calls
                graph = copy.deepcopy(self.joint.graph)
                joint = torch.fx.GraphModule(self.joint, graph)
                forward, _ = min_cut_rematerialization_partition(
                    joint, self.given, compiler="inductor", **self.settings
                )
            outputs: Any = forward.graph.output_node().args[0]
            saved = outputs[self.settings["num_fwd_outputs"] :]
            own = [node for node in saved if node in _of_inputs(forward.graph, self.parameters)]
            values = [node.meta["val"] for node in own]
            storages = [value.untyped_storage() for value in values if torch.is_tensor(value)]
            sizes = {storage._cdata: storage.nbytes() for storage in storages}
            self._saved[budget] = sum(sizes.values())
        return self._saved[budget]


def _of_inputs(graph: torch.fx.Graph, parameters: int) -> set[torch.fx.Node]:
    """The nodes that depend on inputs with a gradient, other than the first ``parameters``."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            is_input = node.name.startswith("primals_") and _number(node) > parameters
            if is_input and torch.is_tensor(value) and value.is_floating_point():
                found.add(node)
        elif not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _number(node: torch.fx.Node) -> int:
    """Of an input, from 1."""
    return int(node.name.removeprefix("primals_"))


class _IsTracedError(Exception):
    """Ends the work of AOTAutograd when both passes are one graph: its arguments."""


def compiled_block(
    step: FakeStep, batch: BatchShapes, known: dict[str, CompiledBlock]
) -> CompiledBlock:
    """The repeated block of the model at the shapes of ``batch``. Equal blocks are traced once, and
    kept in ``known``. Raises IndexError if the model repeats none, and what tracing raises."""
    blocks = [own for part in step.model.modules() for own in repeated_blocks(part)]
    inputs: list[Any] = []
    remove = blocks[0].register_forward_pre_hook(
        lambda _, args, kwargs: inputs.append((args, kwargs)), with_kwargs=True
    )
    try:
        step.micro_batches(batch, samples=0, accumulated=False)
    finally:
        remove.remove()
    dtype = autocast_dtype(step.spec)
    # Under FSDP2 the parameters are gathered in that format, and no operator converts them.
    gathered, autocast = (dtype, None) if is_fsdp(step.spec) else (None, dtype)
    leaves, structure = pytree.tree_flatten(inputs[0])
    shapes = [(own.shape, own.dtype) if torch.is_tensor(own) else repr(own) for own in leaves]
    parameters = [(own.dtype, own.requires_grad) for own in blocks[0].parameters()]
    setting = (gathered, autocast, allowed_kernels(step.spec))
    key = repr((blocks[0], parameters, shapes, setting))
    if key not in known:
        with step.traced(is_recorded=False):
            known[key] = _traced(blocks[0], leaves, structure, gathered, autocast)
    return known[key]


def _traced(
    block: torch.nn.Module,
    leaves: Sequence[Any],
    structure: pytree.TreeSpec,
    gathered: torch.dtype | None,
    autocast: torch.dtype | None,
) -> CompiledBlock:
    """``leaves`` and ``structure`` are the arguments of a call of the block. ``gathered``: the
    format of the parameters that the block's ranks share."""
    tensors = [own for own in leaves if torch.is_tensor(own)]
    parameters = {name: _whole(own, gathered) for name, own in block.named_parameters()}
    named = {**parameters, **dict(block.named_buffers())}

    def call(held: Sequence[Any], values: Sequence[Any]) -> Any:
        given = iter(values)
        filled = [next(given) if torch.is_tensor(own) else own for own in leaves]
        args, kwargs = pytree.tree_unflatten(filled, structure)
        # FSDP2 gathers the parameters in hooks, and these are whole.
        unhooked = patch.multiple(block, _forward_pre_hooks={}, _forward_hooks={})
        with unhooked, torch.autocast("cpu", autocast, enabled=autocast is not None):
            own = dict(zip(named, held, strict=True))
            return torch.func.functional_call(block, own, args, kwargs)

    function = aot_function(
        call,
        fw_compiler=lambda graph, _: graph,
        partition_fn=_partition,
        decompositions=select_decomp_table(),
    )
    values = [own.detach().requires_grad_(own.requires_grad) for own in tensors]
    try:
        function([*named.values()], values)
    except _IsTracedError as traced:
        joint, given, settings = traced.args
    return CompiledBlock(joint=joint, given=given, settings=settings, parameters=len(named))


def _partition(joint: torch.fx.GraphModule, given: Sequence[Any], **settings: Any) -> NoReturn:
    with V.set_fake_mode(detect_fake_mode(given)):
        joint_graph_passes(joint)
    raise _IsTracedError(joint, given, settings)


def _whole(own: torch.nn.Parameter, gathered: torch.dtype | None) -> torch.Tensor:
    """A parameter that ranks share, as it is gathered; any other as it is."""
    if not isinstance(own, DTensor):
        return own
    return torch.empty(own.shape, dtype=gathered or own.dtype, requires_grad=own.requires_grad)
