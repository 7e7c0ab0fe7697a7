"""Activations axis: keep what the backward pass needs, recompute it, or move it to the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, NamePattern, Variant, add

if TYPE_CHECKING:
    import torch

RENAMED = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Training arguments that transformers 5.23 renamed, old -> new. Rows use the old names, because
transformers 5.17 has only those."""


def _checkpoint(doc: str, requires: tuple[str, ...] = (), **kwargs: Any) -> Variant:
    # Settings that change what checkpointing does, beside PyTorch's own, are traits, too.
    own = [name for name in ("every_n_layers", "offload") if name in kwargs]
    return Variant(
        doc=doc,
        training_arguments={
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": kwargs,
        },
        traits=("checkpointing", *own),
        requires=requires,
    )


def _budget(name: str) -> Variant:
    budget = float(name.removeprefix("budget_"))
    return Variant(
        doc=f"Compiled code keeps at most {budget * 100:g} % of the activations that it would "
        "otherwise keep, chosen so that recomputing the others takes the least time; only for "
        "models without dropout",
        hooks={"partitioner": Hook("activation_budget", {"budget": budget})},
        traits=("activation_budget",),
    )


def _offload(doc: str, traits: tuple[str, ...] = (), **training_arguments: Any) -> Variant:
    return Variant(
        doc=doc,
        training_arguments=training_arguments,
        hooks={"checkpointing": Hook("offloaded_activations")},
        # Older versions may read an activation before it is back on the GPU.
        requires=("package:trl", "trl>=1.16", "cuda"),
        traits=("offloaded_activations", *traits),
    )


ACTIVATIONS = Axis(
    name="activations",
    doc="How the activations that the backward pass needs are kept",
    default="keep",
    variants={
        "keep": Variant(doc="No checkpointing: all saved activations stay in device memory"),
        "checkpoint": _checkpoint(
            "Gradient checkpointing: the backward pass recomputes each layer; saves most of the "
            "activation memory, costs about one more forward pass",
            use_reentrant=False,
        ),
        "checkpoint_reentrant": _checkpoint(
            "Gradient checkpointing by PyTorch's older, reentrant implementation",
            use_reentrant=True,
        ),
        # These two set arguments that transformers has since 5.23.
        "checkpoint_every_2": _checkpoint(
            "Gradient checkpointing of every second layer: saves less memory, costs less time",
            requires=("transformers>=5.23",),
            use_reentrant=False,
            every_n_layers=2,
        ),
        "checkpoint_offload": _checkpoint(
            "Gradient checkpointing with the layers' inputs moved to host memory: saves more "
            "device memory, costs transfers",
            requires=("transformers>=5.23", "cuda"),
            use_reentrant=False,
            offload=True,
        ),
        "checkpoint_selective": Variant(
            doc="Checkpointing that keeps the results of matrix products and attention, and "
            "recomputes the rest; PyTorch then dispatches each operation of a block in Python, "
            "which can cost far more time than is saved",
            hooks={"checkpointing": Hook("selective_checkpointing")},
            traits=("checkpointing", "selective"),
        ),
        "offload": _offload(
            "Activations wait for the backward pass in pinned host memory, and nothing is "
            "recomputed; TRL copies them on a stream of their own, which needs a fast bus",
        ),
        "checkpoint_offload_streams": _offload(
            "Gradient checkpointing with the layers' inputs moved to host memory by TRL: the "
            "copies run beside the computation",
            traits=("checkpointing",),
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
        ),
        **{f"budget_{share}": _budget(f"budget_{share}") for share in (0.05, 0.1, 0.2, 0.5, 0.8)},
    },
    pattern=NamePattern(
        form="budget_<share>",
        doc="Any share between 0 and 1, such as `budget_0.35`, written without trailing zeros; "
        "sets `torch._functorch.config.activation_memory_budget`",
        pattern=r"budget_0\.[0-9]*[1-9]",
        variant=_budget,
    ),
)
add(ACTIVATIONS)


@hook("activation_budget")
def activation_budget(*, budget: float) -> None:
    """Let compiled code keep at most this share of its activations for the backward pass. PyTorch's
    partitioner keeps those whose recomputation would take the most time."""
    from torch._functorch import config

    config.activation_memory_budget = budget


@hook("selective_checkpointing")
def selective_checkpointing(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with checkpointed layers that keep the results of matrix products and attention."""
    import functools

    import torch
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    aten = torch.ops.aten
    # These take most of the time of a layer; the rest of it is cheap to recompute.
    kept = [
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    ]
    options = {
        "use_reentrant": False,
        "context_fn": functools.partial(create_selective_checkpoint_contexts, kept),
    }
    # transformers 5.23 renamed the method; older versions have the second name only.
    enable: Any = getattr(model, "activation_checkpointing_enable", None)
    if enable is None:
        enable = model.gradient_checkpointing_enable
    enable(options)
    return model


@hook("offloaded_activations")
def offloaded_activations(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` whose saved activations wait for the backward pass in pinned host memory.

    TRL's implementation, with its defaults: tensors below 1 KiB, parameters, and what the output
    layer saves stay on the GPU. Where bitsandbytes is installed, TRL also empties the allocator's
    cache before each forward pass.
    """
    from trl.models.activation_offloading import get_act_offloading_ctx_manager

    context = get_act_offloading_ctx_manager(model)
    offloading: Any = OffloadingForward(context)
    # Hooks, because a loop may replace ``forward`` later, as TRL's own does.
    model.register_forward_pre_hook(offloading.begin)
    model.register_forward_hook(offloading.end, always_call=True)
    model.activation_offloading = offloading
    return model


class OffloadingForward:
    """Runs the forward passes of a training under TRL's ``OffloadActivations``."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.tracker: dict[int, Any] = context.tracker  # saved tensor, whether it was moved, layout
        self._is_inside = False
        self.moved_bytes = 0  # by the last forward pass

    def begin(self, module: Any, inputs: Any) -> None:
        """Let autograd save its tensors on the host."""
        import torch

        if module.training and torch.is_grad_enabled():
            self._context.__enter__()
            self._is_inside = True

    def end(self, module: Any, inputs: Any, outputs: Any) -> None:
        """Count what was moved, and let autograd save its tensors on the GPU again."""
        if not self._is_inside:
            return
        self._is_inside = False
        self.moved_bytes = sum(
            saved.nbytes for saved, is_moved, *_ in self.tracker.values() if is_moved
        )
        self._context.__exit__(None, None, None)
