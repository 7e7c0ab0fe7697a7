"""The reference of a trial's gradients: the same weights in fp32, eager, with plain attention."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from jobs.techniques.axes.loop import label_shares
from jobs.trial.data.collators import IGNORED

LossOf = Callable[[torch.nn.Module, Mapping[str, Any]], torch.Tensor]
"""The mean loss of a micro-batch, as the training loop computes it for a model."""
_SAME_TRAINING = ("rounding", "vision", "trained", "model")
"""Places of hooks that decide what is trained; the others decide how it is computed."""
_PLAIN = {"attn_implementation": "eager", "experts_implementation": "eager"}


class NotComparableError(Exception):
    """There is no reference for these gradients; the message says why."""


_CODE: dict[str, dict[str, Any]] = {}
"""Module of an architecture -> what it defines, before techniques replace some of that."""


def keep_code() -> None:
    """Remember the code of the architectures that are loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and ".modeling_" in name:
            _CODE.setdefault(name, dict(vars(module)))


def restore_code() -> None:
    """Undo what techniques replaced: fused kernels, for example, replace classes for all models."""
    for name, defined in _CODE.items():
        vars(sys.modules[name]).update(defined)


def plain(spec: TrialSpec) -> TrialSpec:
    """The spec of the same training without any technique that only changes how it is computed."""
    hooks = {name: own for name, own in spec.settings.hooks.items() if name in _SAME_TRAINING}
    loss = spec.settings.hooks.get("loss")
    if loss and AXES["loss"].variant(spec.choices["loss"]).numerical_effect == "training":
        hooks["loss"] = loss
    settings = replace(spec.settings, hooks=hooks, model_kwargs=_PLAIN, deepspeed=None)
    return replace(spec, settings=settings)


def with_weights(
    model: torch.nn.Module, trained: torch.nn.Module, weights: Mapping[str, torch.Tensor]
) -> torch.nn.Module:
    """``model`` in training. NotComparableError if it is not built like ``trained``."""
    own = named_parameters(model)
    shapes, wanted = ({name: each.shape for name, each in part.items()} for part in (own, weights))
    if differing := {name for name, _ in shapes.items() ^ wanted.items()}:
        raise NotComparableError(f"its weights are stored in another form ({min(differing)})")
    for name, module in trained.named_modules():
        other = model.get_submodule(name.replace("_orig_mod.", "").removesuffix("_orig_mod"))
        # What a layer in 4 bits multiplies with is known, but one in 8 bits rounds its inputs, too.
        kinds = ("Linear", "Linear4bit")
        if isinstance(other, torch.nn.Linear) and type(module).__name__ not in kinds:
            raise NotComparableError(f"its linear layers are of the class {type(module).__name__}")
    return model.train()


def restore(
    model: torch.nn.Module,
    weights: Mapping[str, torch.Tensor],
    change: Callable[[torch.Tensor], torch.Tensor] = lambda own: own,
) -> None:
    """Set the parameters to ``weights`` after a ``change``."""
    with torch.no_grad():
        for name, parameter in named_parameters(model).items():
            parameter.copy_(change(weights[name].to(parameter.dtype)))


def named_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Name -> parameter, without what torch.compile adds to names."""
    return {name.replace("_orig_mod.", ""): own for name, own in model.named_parameters()}


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """``model`` with every probability of dropping something set to zero."""
    configs = {id(own): own for each in model.modules() if (own := vars(each).get("config"))}
    for part in [*model.modules(), *configs.values()]:
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for name, value in vars(part).items():
            if "drop" in name and isinstance(value, float):
                setattr(part, name, 0.0)
    return model


def gradients(
    model: torch.nn.Module, loss_of: LossOf, micro_batches: Sequence[Mapping[str, Any]]
) -> dict[str, torch.Tensor]:
    """The gradients of the mean loss of all micro-batches together; without those that are zero.
    Each label counts once, in whatever micro-batch it is."""
    trained = {name: own for name, own in named_parameters(model).items() if own.requires_grad}
    shares: Sequence[Any] = [1 / len(micro_batches)] * len(micro_batches)
    if all("labels" in each for each in micro_batches):
        shares = label_shares(model, micro_batches)
    total: dict[str, torch.Tensor] = {}
    with torch.enable_grad(), _full_fp32():
        for inputs, share in zip(micro_batches, shares, strict=True):
            loss = loss_of(model, inputs) * share
            parts = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
            for name, part in zip(trained, parts, strict=True):
                if part is not None:
                    total[name] = total[name] + part if name in total else part
    return total


def halves(
    model: torch.nn.Module, micro_batches: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The same rows in micro-batches of half the size, which take less memory. NotComparableError
    if there are none: the loss must be a mean over the labels of rows."""
    parts: list[Mapping[str, Any]] = []
    for batch in micro_batches:
        # Single numbers are not per row, such as the number of labels of the whole step.
        per_row = {
            name: own
            for name, own in batch.items()
            if isinstance(own, torch.Tensor) and own.dim() > 0
        }
        rows = {len(own) for own in per_row.values()}
        if rows == {1} or len(rows) != 1:
            parts.append(batch)
        else:
            cut = {name: own.tensor_split(2) for name, own in per_row.items()}
            parts += [{**batch, **{name: own[n] for name, own in cut.items()}} for n in (0, 1)]
    if len(parts) <= len(micro_batches) or "labels" not in parts[0] or _mixes_rows(model):
        raise NotComparableError("its reference in fp32 does not fit the GPU")
    return parts


def _mixes_rows(model: torch.nn.Module) -> bool:
    """Whether a row's loss depends on the others: batch norms, and experts' balance."""
    if getattr(model.config, "output_router_logits", False):
        return True
    return any(isinstance(own, torch.nn.modules.batchnorm._BatchNorm) for own in model.modules())


def predicted_share(micro_batches: Sequence[Mapping[str, Any]]) -> float:
    """The share of the labels that are not the first of their row, which no token predicts. The
    Trainer divides by all labels of models whose type of loss it does not know, such as GPT-2."""
    labels = [each["labels"] for each in micro_batches if "labels" in each]
    if any(each.dim() != 2 for each in labels):
        return 1.0
    count = sum(int(each.ne(IGNORED).sum()) for each in labels)
    return sum(int(each[:, 1:].ne(IGNORED).sum()) for each in labels) / count if count else 1.0


def separate_rows(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A micro-batch whose sequences have several rows each, with one padded row per sequence.
    NotComparableError for inputs that cannot be cut into rows."""
    positions = inputs.get("position_ids")
    if positions is None or "input_ids" not in inputs:
        return dict(inputs)
    ids = inputs["input_ids"]
    named = {name: inputs[name] for name in ("input_ids", "labels") if name in inputs}
    if positions.shape != ids.shape or "pixel_values" in inputs:
        raise NotComparableError("rows with images stand in one sequence")
    # A row begins wherever the position is 0.
    lengths = [_lengths(row) for row in positions]
    padded = {}
    for name, values in named.items():
        parts = [part for row, own in zip(values, lengths, strict=True) for part in row.split(own)]
        fill = IGNORED if name == "labels" else 0
        padded[name] = pad_sequence(parts, batch_first=True, padding_value=fill)
    ones = [torch.ones(own, dtype=torch.long) for row in lengths for own in row]
    padded["attention_mask"] = pad_sequence(ones, batch_first=True).to(ids.device)
    return padded


def _lengths(positions: torch.Tensor) -> list[int]:
    begins = torch.nonzero(positions == 0).flatten().tolist()
    edges = sorted({0, *begins, len(positions)})
    return [after - before for before, after in itertools.pairwise(edges)]


@contextmanager
def _full_fp32() -> Iterator[None]:
    """Matrix products and convolutions in IEEE arithmetic, without TF32."""
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    backends: Sequence[Any] = (torch.backends.cuda.matmul, convolutions)
    before = [each.fp32_precision for each in backends]
    for each in backends:
        each.fp32_precision = "ieee"
    try:
        yield
    finally:
        for each, precision in zip(backends, before, strict=True):
            each.fp32_precision = precision
