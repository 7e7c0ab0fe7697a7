"""Loss axis: whether all logits are in memory at once, and whether all tokens count equally."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Variant, add

if TYPE_CHECKING:
    import torch


def _fused(doc: str, hook_name: str, requires: tuple[str, ...] = ()) -> Variant:
    return Variant(
        doc=doc,
        hooks={"loss": Hook(hook_name)},
        requires=("task:causal-lm", *requires),
        numerical_effect="rounding",
        traits=("fused_loss",),
    )


LOSS = Axis(
    name="loss",
    doc="How the loss of a causal language model is computed",
    default="plain",
    variants={
        "plain": Variant(doc="The loss of transformers: all logits are in memory at once"),
        "chunked": _fused(
            "Output layer and cross-entropy in eight chunks of tokens, in plain PyTorch: saves "
            "most of the memory of the logits",
            "chunked_loss",
        ),
        "liger": _fused(
            "Liger's fused linear cross-entropy: saves nearly all memory of the logits; breaks the "
            "graph of torch.compile",
            "liger_loss",
            ("package:liger_kernel", "cuda"),
        ),
        "cce": _fused(
            "Cut cross-entropy: never has the logits in memory; ignores gradients that are too "
            "small for 16 bits",
            "cut_loss",
            ("package:cut_cross_entropy", "capability>=8.0"),
        ),
    },
)
add(LOSS)


class _Latest:
    """The latest input of the output layer, until the loss function reads it, and that layer."""

    hidden: Any = None
    head: Any = None


@hook("chunked_loss")
def chunked_loss(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with its loss computed in chunks of tokens (see ``_with_fused_loss``)."""
    from types import SimpleNamespace

    # Regional compilation may replace the function by its compiled form, which all chunks share.
    region = SimpleNamespace(function=_chunk_loss_and_gradients)
    fused: Any = _with_fused_loss(model, arguments, "chunked", _chunked_sum(region))
    fused.loss_function.region = region
    return model


@hook("liger_loss")
def liger_loss(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with Liger's fused linear cross-entropy (see ``_with_fused_loss``)."""
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    def total(hidden: Any, weight: Any, bias: Any, targets: Any, ignore_index: int) -> Any:
        return liger_fused_linear_cross_entropy(
            hidden, weight, targets, reduction="sum", ignore_index=ignore_index
        )

    return _with_fused_loss(model, arguments, "liger", total)


@hook("cut_loss")
def cut_loss(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with the loss of cut-cross-entropy (see ``_with_fused_loss``)."""
    from cut_cross_entropy import linear_cross_entropy

    def total(hidden: Any, weight: Any, bias: Any, targets: Any, ignore_index: int) -> Any:
        # "auto" ignores only gradients that are below the precision of the number format.
        return linear_cross_entropy(
            hidden,
            weight.to(hidden.dtype),
            targets,
            ignore_index=ignore_index,
            reduction="sum",
            filter_eps="auto",
        )

    return _with_fused_loss(model, arguments, "cce", total)


def _with_fused_loss(
    model: torch.nn.Module, arguments: Any, kernel: str, total_loss: Callable[..., Any]
) -> torch.nn.Module:
    """``model`` with its output layer and its loss computed together while it trains.

    ``total_loss``: (hidden, weight, bias, targets, ignore_index) -> the sum of the tokens' losses.
    In training, the output layer returns its input, so ``outputs.logits`` are the hidden states. So
    does the copy of it that PEFT trains for ``modules_to_save``. Evaluation is unchanged. Raises
    NotImplementedError for another loss than the cross-entropy of the next token, and for an output
    layer that is not plain or has an adapter.
    """
    import torch

    decoder: Any = model
    head = decoder.get_output_embeddings()
    _refuse_other_losses(model, head, kernel, arguments)
    original_loss: Any = model.loss_function
    latest = _Latest()

    class OutputLayer(torch.nn.Linear):
        def forward(self, hidden: torch.Tensor) -> Any:
            if not self.training:
                return super().forward(hidden)
            if getattr(decoder.get_output_embeddings(), "base_layer", None) is self:
                raise _unsupported(model, "its output layer has an adapter")
            latest.hidden, latest.head = hidden, self
            return hidden

    def loss_function(
        logits: Any,
        labels: Any,
        vocab_size: int,
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: Any = None,
        **kwargs: Any,
    ) -> Any:
        hidden, used = latest.hidden, latest.head
        latest.hidden = latest.head = None
        if hidden is None:
            return original_loss(
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs
            )
        # A model that caps or scales its logits has changed the hidden states instead.
        if not (logits is hidden or (used.bias is None and _is_multiple(logits, hidden))):
            raise _unsupported(model, "it computes with its logits")
        following = shift_labels
        if following is None:
            following = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        targets = following.flatten()
        flat = _as_autocast(logits.flatten(0, -2))
        loss = total_loss(flat, used.weight, used.bias, targets, ignore_index)
        return _mean(loss, targets, ignore_index, num_items_in_batch)

    loss_function.implementation = kernel  # type: ignore[attr-defined]
    head.__class__ = OutputLayer
    model.loss_function = loss_function  # type: ignore[assignment]
    return model


def _is_multiple(logits: Any, hidden: Any) -> bool:
    """Whether hidden states were only multiplied or divided, as Granite and Cohere do it with their
    logits. The logits of the multiple are the same multiple."""
    made = logits.grad_fn
    if made is None or made.name() not in ("MulBackward0", "DivBackward0"):
        return False
    return made.next_functions[0][0] is hidden.grad_fn


def _as_autocast(hidden: Any) -> Any:
    """In the number format that autocast, if it is on, uses for matrix products."""
    import torch

    kind = hidden.device.type
    return hidden.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else hidden


def _mean(total: Any, targets: Any, ignore_index: int, num_items_in_batch: Any) -> Any:
    # As in transformers.loss.loss_utils.fixed_cross_entropy.
    if num_items_in_batch is None:
        return total / (targets != ignore_index).sum()
    return total / num_items_in_batch


def _refuse_other_losses(model: Any, head: Any, kernel: str, arguments: Any) -> None:
    import torch
    from transformers.loss.loss_utils import ForCausalLMLoss

    reason = ""
    if model.loss_function is not ForCausalLMLoss:
        reason = "its loss is not the cross-entropy of the next token"
    elif type(head) is not torch.nn.Linear:
        reason = "its output layer is not a plain linear layer"
    elif head.bias is not None and kernel != "chunked":
        reason = "its output layer has a bias"
    elif arguments.label_smoothing_factor:
        reason = "label smoothing needs the logits"
    if reason:
        raise _unsupported(model, reason)


def _unsupported(model: Any, reason: str) -> NotImplementedError:
    return NotImplementedError(f"{type(model).__name__} does not support a fused loss: {reason}")


def _chunk_loss_and_gradients(
    rows: Any,
    weight: Any,
    bias: Any,
    labels: Any,
    ignore_index: int,
    grad_weight: Any,
    grad_bias: Any,
) -> tuple[Any, Any]:
    """The sum of a chunk's losses, and its gradient for ``rows``, hidden states (tokens, width).
    ``weight`` has their number format. Its gradient is added to ``grad_weight`` in 32 bits, and
    that of ``bias`` to ``grad_bias``: bf16 would round. What is frozen has None there."""
    import torch

    logits = rows @ weight.t()
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    is_counted = (labels != ignore_index).unsqueeze(1)
    # An ignored label may be negative. Index 0 replaces it; ``is_counted`` masks the result.
    column = labels.unsqueeze(1).clamp(min=0)
    # Softmax in 32 bits, as in transformers: 16 bits are too coarse for sums over a vocabulary.
    scores = torch.log_softmax(logits.float(), dim=-1)
    loss = -(scores.gather(1, column) * is_counted).sum()
    # The gradient of cross-entropy for the logits is softmax(logits) minus 1 at the label.
    scores = scores.exp_()
    minus_one = torch.full_like(column, -1, dtype=scores.dtype)
    scores = scores.scatter_add_(1, column, minus_one)
    gradient = (scores * is_counted).to(rows.dtype)
    # The chain rule for logits = rows · weightᵀ + bias.
    if grad_weight is not None:
        grad_weight += gradient.t() @ rows
    if grad_bias is not None:
        grad_bias += gradient.sum(0)
    return loss, gradient @ weight


def _chunked_sum(region: Any) -> Callable[..., Any]:
    import torch

    class ChunkedCrossEntropy(torch.autograd.Function):
        """Computes the gradients already in the forward pass, while the logits are in memory.

        hidden: (tokens, width); weight: (vocabulary, width); targets: (tokens). By the chain rule,
        the backward pass multiplies the saved gradients by that of the sum of the losses.
        """

        @staticmethod
        def forward(
            ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, ignore_index: int
        ) -> Any:
            cast_weight = weight.to(hidden.dtype)
            loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
            # An output layer is frozen beside an adapter.
            is_trained = zip((weight, bias), ctx.needs_input_grad[1:3], strict=True)
            grad_weight, grad_bias = (
                torch.zeros_like(own, dtype=torch.float32) if needs else None
                for own, needs in is_trained
            )
            grad_hidden = []
            # The logits of an eighth of the tokens are in memory at once.
            for rows, labels in zip(hidden.chunk(8), targets.chunk(8), strict=True):
                chunk_loss, grad_rows = region.function(
                    rows, cast_weight, bias, labels, ignore_index, grad_weight, grad_bias
                )
                loss = loss + chunk_loss
                grad_hidden.append(grad_rows)
            ctx.save_for_backward(torch.cat(grad_hidden), grad_weight, grad_bias)
            ctx.weight_dtype = weight.dtype
            return loss

        @staticmethod
        def backward(ctx: Any, grad_loss: Any) -> Any:
            grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
            # In place, because a copy of the weight's gradient would raise the peak memory.
            # Autograd therefore refuses a second backward pass.
            if grad_weight is not None:
                grad_weight = grad_weight.mul_(grad_loss).to(ctx.weight_dtype)
            if grad_bias is not None:
                grad_bias = grad_bias.mul_(grad_loss).to(ctx.weight_dtype)
            return grad_hidden.mul_(grad_loss), grad_weight, grad_bias, None, None

    return ChunkedCrossEntropy.apply
