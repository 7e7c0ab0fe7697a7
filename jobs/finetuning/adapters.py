"""Adapter axis: parameter-efficient fine-tuning through PEFT."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Family, Variant, add

if TYPE_CHECKING:
    import torch


METHODS = {
    "lora": (
        "LoraConfig",
        "LoRA: two low-rank matrices beside each target layer; DoRA and rsLoRA are its parameters, "
        "and dtype: bfloat16 keeps the matrices and their optimizer states in 16 bits",
    ),
    "adalora": (
        "AdaLoraConfig",
        "AdaLoRA: a low-rank update as a singular value decomposition; its ranks stay at init_r, "
        "because the Trainer does not call its rank allocator",
    ),
    "vera": ("VeraConfig", "VeRA: scaling vectors around random matrices that all layers share"),
    "ia3": ("IA3Config", "IA3: vectors that scale keys, values and the feed-forward layer"),
    "loha": ("LoHaConfig", "LoHa: the element-wise product of two low-rank updates"),
    "lokr": ("LoKrConfig", "LoKr: an update that is a Kronecker product"),
    "oft": ("OFTConfig", "OFT: the weights times a block-diagonal orthogonal matrix"),
    "boft": ("BOFTConfig", "BOFT: OFT whose rotation is a product of sparse factors"),
    "hra": ("HRAConfig", "HRA: the weights times a chain of Householder reflections"),
    "fourierft": ("FourierFTConfig", "FourierFT: a few Fourier coefficients of the update"),
    "vblora": ("VBLoRAConfig", "VB-LoRA: low-rank updates composed from one bank of vectors"),
    "randlora": ("RandLoraConfig", "RandLoRA: a full-rank sum of scaled random matrices"),
    "miss": ("MissConfig", "MiSS: one small matrix that all shards of a layer's weights share"),
    "shira": ("ShiraConfig", "SHiRA: a small share of each layer's own weights"),
    "c3a": ("C3AConfig", "C3A: an update by circular convolution"),
    "road": ("RoadConfig", "RoAd: rotations of pairs of each layer's outputs"),
    "ln_tuning": ("LNTuningConfig", "LN tuning: only the layer norms are trained"),
    "prompt_tuning": ("PromptTuningConfig", "Prompt tuning: trained embeddings before the text"),
    "p_tuning": (
        "PromptEncoderConfig",
        "P-tuning: embeddings before the text, made by a small trained network",
    ),
    "prefix_tuning": (
        "PrefixTuningConfig",
        "Prefix tuning: trained keys and values before those of the text, in every layer",
    ),
}
"""Method of PEFT -> its configuration class, in the module ``config`` of the method's own package,
and what it is."""
_OUR_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "lora": {"dtype": Literal["float32", "bfloat16"]},
}
"""Method -> a parameter that its configuration class does not have -> its type."""
_OF_TEXTS = ("prompt_tuning", "p_tuning", "prefix_tuning")
"""Methods that add virtual tokens to a text, so that only models of text can have them."""


def _lora(doc: str, **arguments: Any) -> Variant:
    return Variant(
        doc=doc,
        hooks={"model": Hook("lora", arguments)},
        requires=("package:peft",),
        numerical_effect="training",
        traits=("peft",),
    )


def _variant(method: str, doc: str, parameters: Mapping[str, Any]) -> Variant:
    requires = ["package:peft"]
    if parameters.get("init_lora_weights") == "loftq":
        requires.append("cuda")  # peft.utils.loftq_utils computes the weights on an accelerator
    if method in _OF_TEXTS:
        tokens = parameters.get("num_virtual_tokens", "")
        requires += ["text_task", f"virtual_tokens:{tokens}"]
    return Variant(
        doc=doc,
        hooks={"model": Hook("peft_adapter", {"method": method, "parameters": dict(parameters)})},
        requires=tuple(requires),
        numerical_effect="training",
        traits=("peft", "key_value_prefix") if method == "prefix_tuning" else ("peft",),
    )


# In this file, because a hook uses only names of its own file.
_NOT_ALLOWED = {
    "auto_mapping": "it names classes to import",
    "base_model_name_or_path": "the key model names the model",
    "cartridge_init": "it loads files",
    "eva_config": "it needs data before the training",
    "corda_config": "it needs data before the training",
    "inference_mode": "a trial trains",
    "megatron_config": "it imports another library's modules",
    "megatron_core": "it imports another library's modules",
    "peft_type": "the name of the technique decides it",
    "peft_version": "the installed version decides it",
    "prompt_tuning_init_state_dict_path": "it loads a file",
    "revision": "nothing is downloaded",
    "task_type": "the key model.task decides it",
    "tokenizer_kwargs": "it loads a tokenizer",
    "tokenizer_name_or_path": "it loads a tokenizer",
}
"""Field of PEFT's configuration classes that the user may not set -> the reason."""

ADAPTER = Axis(
    name="adapter",
    doc="Which parameters are trained: all of them, or those of an adapter",
    default="none",
    variants={
        "none": Variant(doc="Full fine-tuning: every parameter is trained"),
        "lora_r8": _lora(
            "LoRA of rank 8 on PEFT's default modules, or query and value: saves nearly all "
            "gradients and optimizer states",
            rank=8,
        ),
        "lora_r64": _lora(
            "LoRA of rank 64 on PEFT's default modules: eight times the parameters of rank 8",
            rank=64,
        ),
        "lora_r8_all_linear": _lora(
            "LoRA of rank 8 on every linear layer: more adapters, which cost time",
            rank=8,
            target_modules="all-linear",
        ),
    },
    families={
        method: Family(
            doc=doc,
            config_class=f"peft.tuners.{method}.config:{class_name}",
            build=functools.partial(_variant, method, doc),
            decided=_NOT_ALLOWED,
            extra=_OUR_PARAMETERS.get(method, {}),
        )
        for method, (class_name, doc) in METHODS.items()
    },
)
add(ADAPTER)

# Task -> PEFT's ``task_type``, if PEFT has one. In this file, because hooks use only its names.
_TASK_TYPES = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
}


@hook("lora")
def lora(
    model: torch.nn.Module,
    task: Task,
    arguments: Any,
    *,
    rank: int,
    target_modules: str | None = None,
    alpha: int = 16,
) -> torch.nn.Module:
    """``model`` with LoRA adapters. Only the adapters and the head of the task are trainable."""
    parameters: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "lora_dropout": 0.0}
    if target_modules:
        parameters["target_modules"] = target_modules
    return peft_adapter(model, task, arguments, method="lora", parameters=parameters)


@hook("peft_adapter")
def peft_adapter(
    model: torch.nn.Module,
    task: Task,
    arguments: Any,
    *,
    method: str,
    parameters: Mapping[str, Any],
) -> torch.nn.Module:
    """``model`` with an adapter of a PEFT ``method``, trained with the head of the task alone.
    ``parameters`` are fields of the method's configuration class, and ``dtype`` of LoRA's weights,
    which have 32 bits otherwise. Raises ValueError if PEFT does
    not support this adapter here, or for a parameter that would import code or load files."""
    from peft import LoftQConfig, get_peft_model
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING as CONFIG_CLASSES
    from peft.utils import PeftType

    # The parameters may come from a run of another user. So a name is never imported.
    for refused in sorted(_NOT_ALLOWED.keys() & parameters.keys()):
        raise ValueError(f"the adapter's parameter {refused} may not be set here")
    fields = dict(parameters)
    dtype = fields.pop("dtype", "float32")
    try:
        kind = PeftType(method.upper())
        if "target_modules" not in fields and (modules := _default_modules(model, kind)):
            fields["target_modules"] = modules
        if modules := fields.get("target_modules"):
            fields["target_modules"] = _in_language_model(model, task, modules)
        if "loftq_config" in fields:
            # PEFT completes an object of this class, but not a mapping.
            fields["loftq_config"] = LoftQConfig(**fields["loftq_config"])
        config = CONFIG_CLASSES[kind](task_type=_TASK_TYPES.get(task), **fields)
        adapted: torch.nn.Module = get_peft_model(model, config)
        _require_parameters(adapted, fields.get("target_parameters") or ())
        for name, parameter in adapted.named_parameters():
            if dtype == "bfloat16" and "lora_" in name:
                parameter.data = parameter.data.bfloat16()
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(f"PEFT does not support this adapter here: {error}") from error
    _require_input_gradients(model, arguments)
    return adapted


def _require_parameters(adapted: torch.nn.Module, targets: Iterable[str]) -> None:
    """Raises ValueError if a parameter that the user names has no adapter: PEFT only warns."""
    names = {getattr(module, "parameter_name", None) for module in adapted.modules()}
    for target in targets:
        if target.rpartition(".")[2] not in names:
            raise ValueError(
                f"no parameter {target} takes an adapter; experts that are packed in 4 bits do not"
            )


def _require_input_gradients(model: torch.nn.Module, arguments: Any) -> None:
    """Make reentrant checkpointing work with frozen embeddings."""
    # transformers 5.23 renamed the argument; this is the new name, then the old one.
    checkpointing = (
        getattr(arguments, "activation_checkpointing_kwargs", None)
        or arguments.gradient_checkpointing_kwargs
    )
    if (checkpointing or {}).get("use_reentrant"):
        # It needs an input that requires gradients, unlike the output of frozen embeddings.
        model.enable_input_require_grads()  # type: ignore[operator]


def _in_language_model(
    model: torch.nn.Module, task: Task, modules: str | list[str]
) -> str | list[str]:
    """The linear layers of a vision-language model that ``modules`` names in its language model.
    Vision towers have layers of the same names, which only a regular expression reaches."""
    import torch

    # Such a model may be trained on texts alone, too.
    trains_texts = task == "causal-lm" and hasattr(model.config, "vision_config")
    is_expression = isinstance(modules, str) and modules != "all-linear"
    if is_expression or not (trains_texts or task == "image-text-to-text"):
        return modules
    inside = {id(module) for module in model.get_decoder().modules()}  # type: ignore[operator]
    names = []
    for name, module in model.named_modules():
        is_named = modules == "all-linear" or name.endswith(tuple(f".{end}" for end in modules))
        if is_named and id(module) in inside and isinstance(module, torch.nn.Linear):
            names.append(name)
    if not names:
        raise ValueError(f"no linear layer of the language model is named {modules}")
    return names


def _default_modules(model: torch.nn.Module, kind: Any) -> str | list[str] | None:
    """PEFT's default modules for the architecture, else the layers that make query and value; None
    if methods of this kind have none. PEFT 0.21 itself does not apply them to mixtures of experts.
    Raises ValueError if no linear layer's name tells of a query or a value."""
    import torch
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING as TUNERS

    known = getattr(TUNERS.get(kind), "target_module_mapping", None)
    # For these two methods "all-linear" is not a valid default; PEFT chooses their modules.
    if not known or kind in ("IA3", "LN_TUNING"):
        return None
    config: Any = model.config
    default = known.get(getattr(config, "model_type", ""))
    if default is None and hasattr(config, "vision_config"):
        # A vision-language model has the layers of its language model's architecture.
        default = known.get(config.get_text_config().model_type)
    if default is not None:
        return default if isinstance(default, str) else list(default)
    # Such as q_proj and v_proj, query and value, qkv_proj, or q_b_proj and kv_b_proj.
    names = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    parts = {"q", "v", "query", "value", "qkv", "kv"}
    modules = sorted(name for name in names if parts.intersection(name.split("_")))
    if not modules:
        raise ValueError("PEFT has no default modules for this architecture; name target_modules")
    return modules
