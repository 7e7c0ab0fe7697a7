"""Whether this node can run a technique: answers for the requirements in ``Variant.requires``."""

import importlib.metadata
import importlib.util
import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping

from packaging.version import Version

from jobs.errors import UnsupportedError
from jobs.spec import TrialSpec
from jobs.tasks import OTHER_INPUTS


def check(requirements: Iterable[str], spec: TrialSpec) -> None:
    """Raises UnsupportedError for the first requirement that this node does not meet."""
    for requirement in requirements:
        if reason := unmet_reason(requirement, spec):
            raise UnsupportedError(requirement, reason)


def unmet_reason(requirement: str, spec: TrialSpec) -> str:
    """Why this node does not meet a requirement; empty if it does."""
    for prefix, answer in _ANSWERS.items():
        if requirement.startswith(prefix):
            return answer(requirement.removeprefix(prefix), spec)
    return f"there is no check for the requirement {requirement!r}"


def lacks_package(requirement: str) -> bool:
    """Whether this node has no such package or an older one, which no trial is needed to tell."""
    return any(
        answer(requirement.removeprefix(prefix), None)
        for prefix, answer in _OF_PACKAGES.items()
        if requirement.startswith(prefix)
    )


def _package(name: str, spec: object) -> str:
    if importlib.util.find_spec(name) is not None:
        return ""
    reason = f"the package {name} is not installed"
    if name in _EXTRAS:
        reason += f": pip install 'training-frontier[{_EXTRAS[name]}]'"
    elif name in DISTRIBUTIONS:
        reason += f": pip install {DISTRIBUTIONS[name]}"
    return reason


_EXTRAS = {
    "cut_cross_entropy": "cce",
    "deepspeed": "deepspeed",
    "liger_kernel": "liger",
    "trl": "sft",
}
"""Module -> the extra of this project that installs it."""
_PACKAGES = """
    apollo_torch bitsandbytes cut_cross_entropy deepspeed flash_attn galore_torch grokadamw kernels
    liger_kernel lomo_optim peft schedulefree torchao trl xformers
"""
DISTRIBUTIONS: Mapping[str, str] = {
    **{name: name.replace("_", "-") for name in _PACKAGES.split()},
    "optimi": "torch-optimi",
}
"""Module -> its package on PyPI. A run folder can name no other, because installing runs code."""

_NOT_FOR_IMAGES = {
    "flattened_rows": "images belong to rows, and this technique makes one sequence of all rows",
    "packed_rows": "images belong to rows, and this technique cuts rows into blocks of tokens",
    "trl_preference_rows": "here, preference training is for models of texts only, without images",
    "trl_sft_rows": "here, training by TRL is for models of texts only, without images",
    "variable_length_attention": "this kernel is causal, and attention in a vision tower is not",
}
"""Hook of a technique for causal language models -> why vision-language models cannot have it."""


def _task(name: str, spec: TrialSpec) -> str:
    task = spec.model.task
    if task == name:
        return ""
    # A vision-language model has the loss of a causal model, so most techniques work for both.
    if name == "causal-lm" and task == "image-text-to-text":
        hooks = spec.settings.hooks.values()
        return "; ".join(
            _NOT_FOR_IMAGES[hook.name] for hook in hooks if hook.name in _NOT_FOR_IMAGES
        )
    return f"it is for the task {name} only; this one is {task}"


def _newer(name: str, distribution: str) -> Callable[[str, object], str]:
    """A check for the version of a package, which is called ``name`` in a sentence."""

    def answer(version: str, spec: object) -> str:
        if missing := _package(distribution, spec):
            return missing
        installed = importlib.metadata.version(distribution)
        # A nightly build counts as the release that it leads to.
        if Version(Version(installed).base_version) >= Version(version):
            return ""
        return f"needs {name} {version} or newer; {installed} is installed"

    return answer


def _cuda(_: str, spec: TrialSpec) -> str:
    import torch

    return "" if torch.cuda.is_available() else "needs a CUDA GPU; this node has none"


def _capability(minimum: str, spec: TrialSpec) -> str:
    import torch

    if missing := _cuda("", spec):
        return missing
    # Compared as numbers, because "10.0" is more than "9.0".
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) >= tuple(map(int, minimum.split("."))):
        return ""
    return f"needs compute capability {minimum}; this GPU has {major}.{minor}"


def _bf16(_: str, spec: TrialSpec) -> str:
    import torch

    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported():
        return "this GPU has no bf16 arithmetic"
    return ""


def _deepspeed_op(name: str, spec: TrialSpec) -> str:
    builds = f"DeepSpeed builds {name} when first used, and"
    if shutil.which("ninja") is None and importlib.util.find_spec("ninja") is None:
        return f"{builds} ninja is not installed"
    if shutil.which("g++") is None and shutil.which("c++") is None:
        return f"{builds} there is no C++ compiler"
    # The other ops need nothing beyond PyTorch; this one needs a system library.
    if name != "async_io":
        return ""
    from deepspeed.ops.op_builder import AsyncIOBuilder

    if AsyncIOBuilder().is_compatible(verbose=False):
        return ""
    return "async_io needs libaio's headers (libaio-dev)"


def _no_attention_dropout(_: str, spec: TrialSpec) -> str:
    from jobs.trial.models import architecture_config

    # The architecture's default counts as well as what the user asked for.
    config = architecture_config(spec.model)
    parts = (config, config.get_text_config(), getattr(config, "vision_config", None))
    names = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "attn_dropout")
    for part, name in itertools.product(parts, names):
        if rate := getattr(part, name, 0.0):
            return (
                f"this attention has no dropout, and the model asks for {name}={rate}; set it to "
                "0.0 in model.config"
            )
    return ""


def _experts(_: str, spec: TrialSpec) -> str:
    from jobs.tasks import auto_class
    from jobs.trial.models import architecture_config

    config = architecture_config(spec.model)
    classes = auto_class(spec.model.task, config)._model_mapping
    # A checkpoint with code of its own is not in the table of architectures.
    model_class = classes.get(type(config), None)
    if model_class is not None and model_class._can_set_experts_implementation():
        return ""
    name = config.model_type if model_class is None else model_class.__name__
    return f"{name} has no experts whose implementation transformers can choose"


def _hub_kernel(repository: str, spec: TrialSpec) -> str:
    if missing := _package("kernels", spec):
        return missing
    from transformers.integrations import hub_kernels

    # Whatever the package raises says why the kernel cannot be used on this node.
    try:
        hub_kernels.get_kernel(repository)
    except Exception as error:
        lines = f"{type(error).__name__}: {error}".strip().splitlines()
        return f"the kernel {repository} cannot be loaded: {lines[0]}"
    return ""


def _hub_layers(_: str, spec: TrialSpec) -> str:
    if missing := _package("kernels", spec):
        return missing
    from transformers.utils import import_utils

    if import_utils.is_kernels_available():
        return ""
    # Each release of transformers works with certain versions of this package.
    oldest = getattr(import_utils, "KERNELS_MIN_VERSION", "")
    version = importlib.metadata.version("kernels")
    return (
        f"transformers does not work with version {version} of the package kernels: "
        f"pip install kernels=={oldest}"
    )


def _several_gpus(_: str, spec: TrialSpec) -> str:
    if spec.world_size > 1:
        return ""
    return "one GPU has nothing to share; resources.gpus_per_trial says how many a trial has"


def _fsdp2(_: str, spec: TrialSpec) -> str:
    if missing := _cuda("", spec):  # accelerate.state.AcceleratorState
        return f"Accelerate shards with FSDP2 on GPUs only: {missing}"
    return ""


def _tokens(_: str, spec: TrialSpec) -> str:
    if given := OTHER_INPUTS.get(spec.model.task):
        return f"it is for rows of tokens, and this model's input is {given}"
    return ""


def _text_task(_: str, spec: TrialSpec) -> str:
    if spec.model.task == "image-text-to-text":
        return "virtual tokens would shift the positions at which the model expects its images"
    return _tokens("", spec)


def _virtual_tokens(count: str, spec: TrialSpec) -> str:
    if not count:
        return "its parameter num_virtual_tokens is missing"
    from jobs.trial.models import architecture_config

    config = architecture_config(spec.model)
    positions = getattr(config, "max_position_embeddings", None)
    # Rotary positions have no table that could end.
    is_rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    if spec.data.synthetic is None or positions is None or is_rotary:
        return ""
    tokens = spec.data.synthetic.sequence_length
    if tokens + int(count) <= positions:
        return ""
    return (
        f"{count} virtual tokens and {tokens} tokens are more than the model's {positions} "
        "positions"
    )


_OF_PACKAGES: Mapping[str, Callable[[str, object], str]] = {
    "package:": _package,
    "transformers>=": _newer("transformers", "transformers"),
    "torch>=": _newer("torch", "torch"),
    "trl>=": _newer("TRL", "trl"),
}
_ANSWERS: Mapping[str, Callable[[str, TrialSpec], str]] = {
    **_OF_PACKAGES,
    "capability>=": _capability,
    "cuda": _cuda,
    "bf16": _bf16,
    "deepspeed_op:": _deepspeed_op,
    "no_attention_dropout": _no_attention_dropout,
    "task:": _task,
    "experts": _experts,
    "hub_kernel:": _hub_kernel,
    "hub_layers": _hub_layers,
    "text_task": _text_task,
    "tokens": _tokens,
    "virtual_tokens:": _virtual_tokens,
    "several_gpus": _several_gpus,
    "fsdp2": _fsdp2,
}
"""Prefix of a requirement -> why it is not met, from the text after the prefix and the spec."""
