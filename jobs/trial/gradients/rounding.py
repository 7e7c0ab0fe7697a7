"""The errors that a number format explains in the gradients of a model.

*Monte Carlo arithmetic* (Parker 1997): the reference is computed again, and each operation's result
is multiplied by 1 + ξ, with ξ uniform within ± the format's unit roundoff. What changes in the
gradients is what rounding may change, with the condition of this model, these weights and these
samples, and whatever kernels a trial uses.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from jobs.steady_state import student_quantile

DRAWS = 4
"""Computations with random rounding. The bound allows for how little they say about a scalar."""


def unit_roundoff(number_format: str) -> float:
    """The largest relative error of one rounding to the nearest number of a format."""
    if number_format == "tf32":
        return 2.0**-11  # NVIDIA A100 white paper: TF32 stores 10 bits of the fraction
    return torch.finfo(getattr(torch, number_format)).eps / 2


def amplitude(number_format: str, longest_sum: int) -> float:
    """The relative error of one operation: its result's rounding, and that of its sums in fp32. The
    errors of a sum of n terms add up like a random walk (Higham and Mary 2019): √n roundoffs."""
    return unit_roundoff(number_format) + math.sqrt(longest_sum) * unit_roundoff("float32")


class RandomRounding(TorchDispatchMode):
    """Within this context, what is computed from ``weights`` has random relative errors. They are
    up to ``size``. Positions and masks stay exact: they decide what is computed."""

    def __init__(self, size: float, seed: int, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._size = size
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._inexact = WeakTensorKeyDictionary()
        self._inexact.update((each, True) for each in weights)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = (each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor))
        if not any(each in self._inexact for each in given):
            return result
        # A view is no computation, and neither is writing into a tensor that exists.
        if all(each.alias_info is None for each in func._schema.returns):
            result = tree_map(self.rounded, result)
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._inexact[each] = True
        return result

    def rounded(self, value: Any) -> Any:
        """A tensor with random errors; all else, and single numbers, which are kept in fp32."""
        is_tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
        if not is_tensor or value.numel() == 1:
            return value
        if value.device not in self._generators:
            generator = torch.Generator(value.device).manual_seed(self._seed)
            self._generators[value.device] = generator
        errors = torch.rand(
            value.shape, generator=self._generators[value.device], device=value.device
        )
        return value * errors.mul_(2 * self._size).add_(1 - self._size).to(value.dtype)


def bounds(
    reference: Mapping[str, torch.Tensor], deviations: Mapping[str, Sequence[torch.Tensor]]
) -> dict[str, float]:
    """Tensor -> the norm of the difference that rounding explains, from its random deviations.

    The errors of a tensor's elements are not independent: an early error is in all of them. The
    mean squared cosine between deviations is 1/d for errors with d degrees of freedom, so several
    draws say how well their mean square is known. The bound is Student's quantile for that.
    """
    # Rounding alone shall make a comparison of all tensors fail once in 10,000 times.
    chance = 1e-4 / (2 * len(reference))
    allowed = {}
    for name, own in deviations.items():
        flat = torch.stack([each.flatten().float() for each in own])
        products = flat @ flat.T
        squares = products.diagonal()
        mean_square = float(squares.mean())
        if mean_square == 0:
            allowed[name] = 0.0
            continue
        cosines = products.square() / torch.outer(squares, squares).clamp_min(torch.finfo().tiny)
        pairs = cosines[torch.triu_indices(len(own), len(own), 1).unbind()]
        freedom = len(own) / float(pairs.mean().clamp(1 / reference[name].numel(), 1.0))
        allowed[name] = math.sqrt(mean_square) * student_quantile(1 - chance, freedom)
    return allowed
