"""The model of a trial: an architecture with random weights, or a checkpoint by name or path."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

from jobs.spec import ModelSpec
from jobs.tasks import auto_class


def architecture_config(spec: ModelSpec) -> transformers.PretrainedConfig:
    """The model's configuration."""
    if spec.name_or_path is not None:
        return transformers.AutoConfig.from_pretrained(
            spec.name_or_path, trust_remote_code=spec.trust_remote_code, **spec.config
        )
    return transformers.AutoConfig.for_model(spec.architecture or "", **spec.config)


def give_token_ids(model: Any, task: str, pad_token_id: int = 0) -> None:
    """Set the ids that pad rows and that a decoder starts from, where the model has none. This is
    after the build, because an embedding would not train the id that it was built to pad with."""
    if task != "image-classification" and getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = pad_token_id  # by default 0, which is in any vocabulary
    if "seq2seq" in task and getattr(model.config, "decoder_start_token_id", None) is None:
        model.config.decoder_start_token_id = model.config.pad_token_id


def build(
    spec: ModelSpec,
    kwargs: Mapping[str, Any],
    device: torch.device,
    *,
    place: Callable[..., torch.nn.Module] | None = None,
    pad_token_id: int = 0,
) -> torch.nn.Module:
    """The model, its weights on ``device`` (ZeRO-3 places them itself). ``pad_token_id``: what its
    rows are padded with, if it says nothing itself.

    ``place`` is the hook ``base``. ``kwargs`` go to ``from_config`` or ``from_pretrained``; their
    ``dtype`` is the name of a torch dtype. Raises ValueError or ImportError for an attention
    implementation that the architecture lacks.
    """
    config = architecture_config(spec)
    model_class = auto_class(spec.task, config)
    # fp32 by default, because the precision axis decides. "auto" would follow the checkpoint.
    arguments = {**kwargs, "dtype": getattr(torch, kwargs.get("dtype", "float32"))}
    is_checkpoint = spec.name_or_path is not None
    make = functools.partial(model_class.from_config, config, trust_remote_code=False, **arguments)
    if is_checkpoint:
        arguments |= {"config": config, "trust_remote_code": spec.trust_remote_code}
        if spec.task.endswith("-classification") and "num_labels" in spec.config:
            # For other classes than the checkpoint's, the last layer begins anew.
            arguments["ignore_mismatched_sizes"] = True
        make = functools.partial(model_class.from_pretrained, spec.name_or_path, **arguments)
    if place is not None:
        model: torch.nn.Module = place(make, is_checkpoint, device)
    else:
        # Random weights drawn on the device itself: 0.1 s for BERT-large, and 4 s on the host.
        with contextlib.nullcontext() if is_checkpoint else device:
            model = make()
        model = model.to(device)
    give_token_ids(model, spec.task, pad_token_id)
    return model
