"""What a trial may name. Its spec may come from a stranger, in a config or in a run folder.

Other names make libraries publish, report, download, run code or write elsewhere.
"""

import functools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from jobs.techniques.axes.activations import RENAMED
from jobs.techniques.variant import Variant

Refused = tuple[tuple[str | int, ...], str]  # the path of what may not be named, and why


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NVME_FOLDER = "{nvme}"
"""Stands for the folder of ``resources.nvme_path`` in DeepSpeed's settings."""
_HARMLESS_ARGUMENTS = _words(
    """
    adam_beta1 adam_beta2 adam_epsilon average_tokens_across_devices batch_eval_metrics
    bf16_full_eval data_seed dataloader_drop_last dataloader_in_order
    dataloader_multiprocessing_context debug eval_accumulation_steps fp16_full_eval
    full_determinism greater_is_better ignore_data_skip include_for_metrics
    include_num_input_tokens_seen label_names label_smoothing_factor learning_rate
    length_column_name liger_kernel_config log_level_replica log_on_each_node logging_first_step
    logging_steps logging_strategy lr_scheduler_kwargs lr_scheduler_type max_grad_norm
    metric_for_best_model neftune_noise_alpha per_device_eval_batch_size prediction_loss_only
    project remove_unused_columns run_name torch_empty_cache_steps use_cache use_liger_kernel
    warmup_steps weight_decay
    """
)
"""Fields of ``TrainingArguments`` that no axis sets, and that change a step or nothing."""
DEEPSPEED_SECTIONS = _words(
    """
    activation_checkpointing aio amp bf16 checkpoint comms_logger communication_data_type
    compile compression_training data_types disable_allgather dump_state fp16
    gradient_accumulation_steps gradient_clipping gradient_predivide_factor memory_breakdown
    optimizer prescale_gradients scheduler seed_layers sparse_attention sparse_gradients
    steps_per_print tensor_parallel torch_autocast train_batch_size
    train_micro_batch_size_per_gpu wall_clock_breakdown zero_allow_untested_optimizer
    zero_force_ds_cpu_optimizer zero_optimization
    """
)
"""Sections of a DeepSpeed file that neither report nor write files."""
_STEERS_LOADING = _words(
    """
    attn_implementation auto_map cache_dir code_revision config_file experts_implementation
    gguf_file kernel_config pretrained_model_name_or_path proxies return_unused_kwargs revision
    subfolder token trust_remote_code use_auth_token use_kernels weights_only
    """
)
"""Keys of a configuration that do not describe a model, but say what transformers loads or runs."""
_PUBLISHES = ("push_to_hub", "hub_", "report_to", "output_dir", "trackio_")
"""Beginnings of the names of arguments that publish, report or write."""


def refusal(spec: TrialSpec) -> str:
    """The first thing that a trial names and may not, in a sentence; empty if there is none."""
    settings = spec.settings
    hooks = {place: hook.arguments for place, hook in settings.hooks.items()}
    from_hub = [name for name in settings.requires if name.startswith("hub_")]
    parts: dict[str, Iterator[Refused]] = {
        "training_arguments": argument_refusals(settings.training_arguments),
        "deepspeed": deepspeed_refusals(settings.deepspeed or {}),
        "model.config": model_refusals(spec.model.config),
        "model_kwargs": _unknown_to_techniques(settings.model_kwargs.items()),
        "requires": _unknown_to_techniques((name, "") for name in from_hub),
        "hooks": _parameter_refusals(hooks),
    }
    for part, found in parts.items():
        for at, reason in found:
            return f"{'.'.join(map(str, (part, *at)))} {reason}"
    return ""


def argument_refusals(arguments: Mapping[str, Any]) -> Iterator[Refused]:
    """The training arguments that a trial may not set: the path of each, and what it would do."""
    for name, value in arguments.items():
        if name not in allowed_arguments():
            yield (name,), "is not an argument that a trial may set"
        elif name == "accelerator_config" and not isinstance(value, Mapping):
            yield (name,), "names a file of its own; write its values here"


@functools.cache
def allowed_arguments() -> frozenset[str]:
    """The fields of ``TrainingArguments`` that a trial may set."""
    of_axes = {axis.integer_argument for axis in AXES.values() if axis.integer_argument}
    of_rows = (variant.training_arguments for variant in _rows())
    return _HARMLESS_ARGUMENTS.union(of_axes, RENAMED, RENAMED.values(), *of_rows)


def deepspeed_refusals(config: Mapping[str, Any]) -> Iterator[Refused]:
    """The settings of DeepSpeed that report to a service, or write files: path and reason."""
    for name, section in config.items():
        is_off = isinstance(section, Mapping) and section.get("enabled") is False
        if name not in DEEPSPEED_SECTIONS and not is_off:
            yield (name,), "could make DeepSpeed report or write elsewhere; remove it"
    for at, value in _entries(config):
        if at[-1] == "nvme_path" and value != NVME_FOLDER:
            yield at, f'must be "{NVME_FOLDER}": the key resources.nvme_path names the folder'


def model_refusals(config: Mapping[str, Any]) -> Iterator[Refused]:
    """The keys of a model's configuration, at any depth, that decide what transformers loads."""
    for at, _ in _entries(config):
        # Python reads names in this form, so a key of other letters may become the same name.
        key = unicodedata.normalize("NFKC", at[-1])
        # Keys that begin with an underscore are transformers' own.
        if key in _STEERS_LOADING or key.startswith("_"):
            yield at, "would decide what transformers loads or runs; remove it"


def _parameter_refusals(hooks: Mapping[str, Any]) -> Iterator[Refused]:
    """Parameters that a library's class may hand on, such as to ``TrainingArguments``."""
    for at, _ in _entries(hooks):
        key = unicodedata.normalize("NFKC", at[-1])
        if key in _STEERS_LOADING or key.startswith(_PUBLISHES):
            yield at, "is not a parameter that a technique may set"


def _unknown_to_techniques(pairs: Iterable[tuple[str, Any]]) -> Iterator[Refused]:
    for name, value in pairs:
        if (name, value) not in _of_techniques():
            yield (name,), f"of {value!r} belongs to no technique"


@functools.cache
def _of_techniques() -> Sequence[tuple[str, Any]]:
    """Every keyword of a model with its value, and every requirement, in the rows of all axes."""
    keywords = [pair for variant in _rows() for pair in variant.model_kwargs.items()]
    return [*keywords, *((name, "") for variant in _rows() for name in variant.requires)]


def _rows() -> Sequence[Variant]:
    return [variant for axis in AXES.values() for variant in axis.variants.values()]


def _entries(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key in nested mappings and lists, as its path, with its value."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(key, str):
            yield (key,), item
        for at, below in _entries(item):
            yield (str(key), *at), below
