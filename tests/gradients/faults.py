"""Faults in the gradients of a model, planted after everything else has changed it.

Each is a function of the model. It changes this model alone, never its class.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from jobs.techniques.hooks import hook

Fault = Callable[[Any], object]


@hook("faults.gradients")
def plant(model: Any, task: str, arguments: Any, *, fault: str) -> Any:
    """The model with one of ``FAULTS``."""
    FAULTS[fault](model)
    return model


def _part(model: Any, end: str) -> Any:
    """The first module whose name ends like this."""
    return next(part for name, part in model.named_modules() if name.endswith(end))


def _output(model: Any, end: str, change: Callable[[Any], Any]) -> None:
    _part(model, end).register_forward_hook(lambda module, args, output: change(output))


def _gradient(model: Any, end: str, change: Callable[[Any], Any]) -> None:
    _part(model, end).weight.register_hook(change)


def _inputs(model: Any, change: Callable[[dict[str, Any]], object]) -> None:
    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        kwargs = dict(kwargs)
        change(kwargs)
        return args, kwargs

    model.register_forward_pre_hook(before, with_kwargs=True)


def _loss(model: Any, factor: Callable[[int], float]) -> None:
    """Multiply the loss of each pass by a factor of its number, from 0."""
    passes = iter(range(1_000_000))

    def change(module: Any, args: Any, output: Any) -> Any:
        output.loss = output.loss * factor(next(passes))
        return output

    model.register_forward_hook(change)


def _detached(output: Any) -> Any:
    return (output[0].detach(), *output[1:]) if isinstance(output, tuple) else output.detach()


def _norm_without_a_term(model: Any, end: str) -> None:
    """The scale of a norm, taken for a constant in the backward pass."""
    norm = _part(model, end)
    forward = norm.forward

    def constant(states: Any) -> Any:
        right = forward(states)
        scale = (right / states.masked_fill(states == 0, 1)).detach()
        return scale * states + (right - scale * states).detach()

    norm.forward = constant


def _stale(model: Any, end: str) -> None:
    """The weights of the first step, although their gradients go to the present ones."""
    linear = _part(model, end)
    stale = linear.weight.detach().clone()
    linear.forward = lambda states: functional.linear(
        states, stale + (linear.weight - linear.weight.detach()), linear.bias
    )


class _Transposed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, states: Any, weight: Any) -> Any:
        context.save_for_backward(states, weight)
        return states @ weight.T

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:  # type: ignore[override]
        states, weight = context.saved_tensors
        return gradient @ weight.T, gradient.flatten(0, -2).T @ states.flatten(0, -2)


class _MaskedBackwards(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, states: Any) -> Any:
        return states.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient * (torch.rand_like(gradient) > 0.1) / 0.9


def _untied(model: Any) -> None:
    head = model.get_output_embeddings()
    head.forward = lambda states: functional.linear(states, head.weight.detach())


def _transposed(model: Any, end: str) -> None:
    linear = _part(model, end)
    linear.forward = lambda states: _Transposed.apply(states, linear.weight)


def _without_causality(inputs: dict[str, Any]) -> None:
    """Every token attends to every other one."""
    rows, tokens = inputs["input_ids"].shape
    inputs["attention_mask"] = torch.ones(rows, 1, tokens, tokens, dtype=torch.bool).to(
        inputs["input_ids"].device
    )


def _rotary(model: Any, change: Callable[[Any], Any]) -> None:
    rotary = _part(model, "rotary_emb")
    forward = rotary.forward
    rotary.forward = lambda states, position_ids: forward(states, change(position_ids))


def _in_16_bits(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to(torch.bfloat16).to(gradient.dtype)


def _summed_in_16_bits(gradient: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(gradient, dtype=torch.bfloat16)
    for share in range(1, 17):  # sixteen parts of different size
        total += (gradient * share / 136).to(torch.bfloat16)
    return total.to(gradient.dtype)


FAULTS: dict[str, Fault] = {
    "scale/projection": lambda model: _gradient(
        model, "0.self_attn.q_proj", lambda own: 1.25 * own
    ),
    "scale/decoder bf16": lambda model: _gradient(model, "1.mlp.up_proj", lambda own: 0.5 * own),
    "mask/padding bert": lambda model: _inputs(model, lambda own: own.pop("attention_mask")),
    "mask/causal": lambda model: _inputs(model, _without_causality),
    "term/rms norm": lambda model: _norm_without_a_term(model, "1.input_layernorm"),
    "term/layer norm bert": lambda model: _norm_without_a_term(model, "0.output.LayerNorm"),
    "detached/mlp": lambda model: _output(model, "0.mlp", _detached),
    "detached/attention bert": lambda model: _output(model, "0.attention.self", _detached),
    "accumulation/one pass counts twice": lambda model: _loss(model, lambda own: 1 + own % 2),
    "accumulation/mean of means": lambda model: _inputs(
        model, lambda own: own.pop("num_items_in_batch", None)
    ),
    "stale/mlp": lambda model: _stale(model, "0.mlp.down_proj"),
    "stale/head": lambda model: _stale(model, "lm_head"),
    "dtype/gradient": lambda model: _gradient(model, "1.self_attn.v_proj", _in_16_bits),
    "dtype/sum": lambda model: _gradient(model, "0.mlp.gate_proj", _summed_in_16_bits),
    "tied/one of two uses tied": _untied,
    "tied/transposed": lambda model: _transposed(model, "1.self_attn.o_proj"),
    "loss/doubled": lambda model: _loss(model, lambda own: 2.0),
    "loss/doubled bert bf16": lambda model: _loss(model, lambda own: 2.0),
    "labels/padding counts": lambda model: _inputs(
        model, lambda own: own.update(labels=own["labels"].clamp(min=0))
    ),
    "labels/one row is ignored": lambda model: _inputs(
        model, lambda own: own["labels"][0].fill_(-100)
    ),
    "positions/rotary packed": lambda model: _rotary(model, lambda own: own // 2),
    "positions/rotary": lambda model: _rotary(model, lambda own: own.clamp(max=8)),
    "recomputed/other mask": lambda model: _output(model, "1.mlp", _MaskedBackwards.apply),
    "recomputed/other mask bf16": partial(_output, end="0.mlp", change=_MaskedBackwards.apply),
    "base/decoded with another scale 4bit": lambda model: _output(
        model, "0.mlp.down_proj.base_layer", lambda own: 1.25 * own
    ),
    "detached/mlp 4bit packed": lambda model: _output(model, "0.mlp", _detached),
}
"""Kind and case -> the fault. The words bert, bf16, 4bit, packed and tied choose the
configuration."""
