"""Loss axis: whether the logits of a language model are held at once to compute its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    from jobs.spec import Task


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
        "plain": Variant(doc="As transformers does: the logits of all tokens are held at once"),
        "chunked": _fused(
            "Output layer and cross-entropy in eight chunks of tokens, with PyTorch alone: saves "
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
            "Cut cross-entropy: never holds the logits in memory; leaves out gradients below the "
            "rounding of 16 bits",
            "cut_loss",
            ("package:cut_cross_entropy", "capability>=8.0"),
        ),
    },
)

_CHUNKS = 8
"""The logits of an eighth of the tokens are held at once."""


class _Latest:
    """What the output layer got last, until the loss function takes it."""

    hidden: Any = None


@hook("chunked_loss")
def chunked_loss(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with its loss over one chunk of tokens after the other (see ``_with_fused_loss``).

    The work on one chunk is the region that compiled regions compile: its graph is an eighth of the
    whole loss's, and serves all chunks.
    """
    region = _Region(_chunk_loss_and_gradients)
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
        # "auto" leaves out only what the number format could not hold.
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
    In training the output layer returns its input, and the loss function multiplies by the layer's
    weight. So ``outputs.logits`` has no logits then. In evaluation both are as before.
    ``arguments`` are the ``TrainingArguments``. Raises NotImplementedError for a model whose loss
    is another one, or whose output layer is not a plain linear layer.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    _refuse_other_losses(model, head, kernel, arguments)
    plain_head = head.forward
    plain_loss: Any = model.loss_function
    latest = _Latest()

    def head_forward(hidden: torch.Tensor) -> Any:
        if not head.training:
            return plain_head(hidden)
        latest.hidden = hidden
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
        hidden = latest.hidden
        latest.hidden = None
        if hidden is None:
            return plain_loss(
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs
            )
        # A model that scales or caps its logits would now do so to the hidden states.
        if logits is not hidden:
            raise NotImplementedError(
                f"{type(model).__name__} does not support a fused loss: it computes with its logits"
            )
        targets = _next_tokens(labels, shift_labels, ignore_index)
        flat = hidden.flatten(0, -2)
        loss = total_loss(_as_autocast(flat), head.weight, head.bias, targets, ignore_index)
        # As transformers.loss.loss_utils.fixed_cross_entropy: the mean over the labels of the
        # micro-batch, or over those of the whole step.
        if num_items_in_batch is None:
            return loss / (targets != ignore_index).sum()
        return loss / num_items_in_batch

    loss_function.implementation = kernel  # type: ignore[attr-defined]
    head.forward = head_forward
    model.loss_function = loss_function  # type: ignore[assignment]
    return model


def _refuse_other_losses(model: Any, head: Any, kernel: str, arguments: Any) -> None:
    """Raise NotImplementedError if another loss than this one would be replaced."""
    import torch
    from transformers.loss.loss_utils import ForCausalLMLoss

    name = type(model).__name__
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
        raise NotImplementedError(f"{name} does not support a fused loss: {reason}")


def _next_tokens(labels: torch.Tensor, shift_labels: Any, ignore_index: int) -> torch.Tensor:
    """The label of each position, one dimension: the next token, none after the last."""
    import torch

    following: torch.Tensor = shift_labels
    if shift_labels is None:
        following = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    return following.flatten()


def _as_autocast(hidden: torch.Tensor) -> torch.Tensor:
    """``hidden`` in the number format in which autocast would multiply it."""
    import torch

    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        return hidden.to(torch.get_autocast_dtype(kind))
    return hidden


class _Region:
    """A function that compiled regions may replace by its compiled form."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def _chunk_loss_and_gradients(
    rows: Any, narrow: Any, bias: Any, labels: Any, ignore_index: int, of_weight: Any, of_bias: Any
) -> tuple[Any, Any]:
    """The sum of a chunk's losses, and its gradient by ``rows``, which are (tokens, width).

    The gradients by weight and bias are added to ``of_weight`` and ``of_bias``, in 32 bits, because
    bf16 would round each sum. ``narrow`` is the weight in the format of ``rows``.
    """
    import torch

    logits = rows @ narrow.t()
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    is_counted = (labels != ignore_index).unsqueeze(1)
    column = labels.unsqueeze(1).clamp(min=0)
    # Softmax in 32 bits, as transformers computes it.
    scores = torch.log_softmax(logits.float(), dim=-1)
    loss = -(scores.gather(1, column) * is_counted).sum()
    # The gradient of cross-entropy: the probabilities, less 1 at the label.
    scores = scores.exp_()
    minus_one = torch.full_like(column, -1, dtype=scores.dtype)
    scores = scores.scatter_add_(1, column, minus_one)
    gradient = (scores * is_counted).to(rows.dtype)
    of_weight += gradient.t() @ rows
    if of_bias is not None:
        of_bias += gradient.sum(0)
    return loss, gradient @ narrow


def _chunked_sum(region: _Region) -> Callable[..., Any]:
    """The sum of the tokens' losses, with the logits of one chunk of tokens at a time.

    ``region`` holds ``_chunk_loss_and_gradients`` or its compiled form.
    """
    import torch

    class ChunkedCrossEntropy(torch.autograd.Function):
        """Computes the gradients in the forward pass, where the logits of a chunk are at hand.

        hidden: (tokens, width); weight: (vocabulary, width); targets: (tokens). The gradients are
        those of the sum of the losses. The backward pass multiplies them by its own gradient.
        """

        @staticmethod
        def forward(
            ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, ignore_index: int
        ) -> Any:
            narrow = weight.to(hidden.dtype)
            loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
            of_weight = torch.zeros_like(weight, dtype=torch.float32)
            of_bias = None
            if bias is not None:
                of_bias = torch.zeros_like(bias, dtype=torch.float32)
            of_hidden = []
            chunks = zip(hidden.chunk(_CHUNKS), targets.chunk(_CHUNKS), strict=True)
            for rows, labels in chunks:
                of_chunk, of_rows = region.function(
                    rows, narrow, bias, labels, ignore_index, of_weight, of_bias
                )
                loss = loss + of_chunk
                of_hidden.append(of_rows)
            ctx.save_for_backward(torch.cat(of_hidden), of_weight, of_bias)
            ctx.weight_dtype = weight.dtype
            return loss

        @staticmethod
        def backward(ctx: Any, of_loss: Any) -> Any:
            of_hidden, of_weight, of_bias = ctx.saved_tensors
            # In place: a copy of the weight's gradient would add to the peak. Autograd then refuses
            # a second backward pass.
            of_weight = of_weight.mul_(of_loss).to(ctx.weight_dtype)
            if of_bias is not None:
                of_bias = of_bias.mul_(of_loss).to(ctx.weight_dtype)
            return of_hidden.mul_(of_loss), of_weight, of_bias, None, None

    return ChunkedCrossEntropy.apply
