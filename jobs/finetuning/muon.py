"""Muon of the optimizer axis: orthogonal updates of the layers' matrices, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from jobs.spec import Hook
from jobs.techniques.hooks import hook
from jobs.techniques.variant import AXES, Family, Variant

if TYPE_CHECKING:
    import torch


def _muon(parameters: Mapping[str, Any]) -> Variant:
    return Variant(
        doc="Muon for the matrices of the layers, with one 32-bit state per parameter and an "
        "orthogonalised update, which costs time; AdamW for embeddings, output layer, fused "
        "experts and vectors",
        hooks={"optimizer": Hook("muon", dict(parameters))},
        numerical_effect="training",
        traits=("whole_matrices",),
    )


AXES["optimizer"].variants["muon"] = _muon({})
AXES["optimizer"].families["muon"] = Family(
    doc="muon with settings of torch's Muon, such as momentum and ns_steps",
    config_class="torch.optim._muon:Muon",
    build=_muon,
    decided={
        "params": "the model decides it",
        "lr": "the training argument learning_rate decides it",
        "weight_decay": "the training argument weight_decay decides it",
    },
    extra={"adjust_lr_fn": Literal["original", "match_rms_adamw"]},
)


@hook("muon")
def muon(model: torch.nn.Module, arguments: Any, **settings: Any) -> torch.optim.Optimizer:
    """One optimizer that updates matrices of the layers by Muon, and all else by AdamW.

    ``arguments`` are the ``TrainingArguments``, and ``settings`` those of ``torch.optim.Muon``.
    Unless they say otherwise, updates are scaled to the size of AdamW's (arXiv 2502.16982), so
    that one learning rate suits both. Raises ValueError if no matrix is trained.
    """
    import torch

    class MuonWithAdamW(torch.optim.Optimizer):
        """Two optimizers behind one list of parameter groups and one mapping of states."""

        def __init__(self, *parts: torch.optim.Optimizer) -> None:
            groups = [group for part in parts for group in part.param_groups]
            super().__init__(groups, {})
            self._parts = parts

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            start = 0
            for part in self._parts:
                # Loading a checkpoint replaces the groups and the states of this optimizer.
                end = start + len(part.param_groups)
                part.param_groups = self.param_groups[start:end]
                part.state = self.state
                part.step()
                start = end
            return loss

    matrices, others = _split(model)
    if not matrices:
        raise ValueError(
            f"{type(model).__name__} does not support Muon: none of the trained parameters is a "
            "matrix of a layer"
        )
    chosen = {"adjust_lr_fn": "match_rms_adamw", **settings}
    of_matrices = torch.optim.Muon(
        matrices, lr=arguments.learning_rate, weight_decay=arguments.weight_decay, **chosen
    )
    if not others:
        return MuonWithAdamW(of_matrices)
    return MuonWithAdamW(of_matrices, _adamw(others, arguments))


def _adamw(parameters: list[torch.nn.Parameter], arguments: Any) -> torch.optim.Optimizer:
    import torch

    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": arguments.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=arguments.learning_rate,
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
        fused=True,
    )


def _split(
    model: torch.nn.Module,
) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The trained matrices of layers (no embeddings, no output layer), and other parameters."""
    from torch import nn

    inner: Any = model
    if hasattr(inner, "get_base_model"):
        inner = inner.get_base_model()  # the model within PEFT's
    body = getattr(inner, "base_model", inner)
    within = {id(parameter) for parameter in body.parameters()}
    for module in body.modules():
        if isinstance(module, nn.Embedding):
            within -= {id(parameter) for parameter in module.parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            is_matrix = parameter.ndim == 2 and id(parameter) in within
            (matrices if is_matrix else others).append(parameter)
    return matrices, others
