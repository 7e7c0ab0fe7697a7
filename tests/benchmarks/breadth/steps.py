"""How an example trains a step: batches, optimizer, activations, attention, kernels and loss."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example
from tests.benchmarks.breadth.liger import translate_liger

_NUMBERS = {
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
    "adam_beta1": "adam_beta1",
    "adam_beta2": "adam_beta2",
    "adam_epsilon": "adam_epsilon",
    "adam_eps": "adam_epsilon",
    # transformers 5 takes a share of the steps under this name, too.
    "warmup_ratio": "warmup_steps",
    "warmup_steps": "warmup_steps",
    "neftune_noise_alpha": "neftune_noise_alpha",
}
"""Key of axolotl -> field of TrainingArguments."""
_OPTIMIZERS = {"adamw_8bit": "adamw_bnb_8bit"}
"""Another name -> the same optimizer's name on our axis."""
_ATTENTION = {
    "kernels-community/flash-attn2": "hub_flash_attention_2",
    "kernels-community/vllm-flash-attn3": "hub_flash_attention_3",
}
_CCE_PLUGIN = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
_LIGER_PLUGIN = "axolotl.integrations.liger.LigerPlugin"
_KNOWN_PLUGINS = (
    _CCE_PLUGIN,
    _LIGER_PLUGIN,
    # What these two turn on has keys of its own.
    "axolotl.integrations.kernels.KernelsPlugin",
    "axolotl.integrations.swanlab.SwanLabPlugin",
)


def translate_steps(example: Example, draft: Draft) -> None:
    """Everything about a step but its rows and its weights."""
    _translate_batches(example, draft)
    _translate_arguments(example, draft)
    _translate_activations(example, draft)
    _translate_attention(example, draft)
    _translate_compilation(example, draft)
    _translate_kernels(example, draft)


def _translate_batches(example: Example, draft: Draft) -> None:
    micro_batch = int(example.take("micro_batch_size", 1))
    draft.axes["micro_batch"] = micro_batch
    draft.axes["accumulation"] = int(example.take("gradient_accumulation_steps", 1))
    evaluated = example.take("eval_batch_size")
    # An evaluation of larger batches may need more memory than ours, which has the training's.
    if evaluated is not None and int(evaluated) > micro_batch:
        draft.miss("evaluation: larger batches than the training's")


def _translate_arguments(example: Example, draft: Draft) -> None:
    """The optimizer and plain fields of TrainingArguments."""
    optimizer = example.take("optimizer", "adamw_torch_fused")
    draft.axes["optimizer"] = _OPTIMIZERS.get(optimizer, optimizer)
    for key, field in _NUMBERS.items():
        value = example.number(key)
        if value is not None:
            draft.arguments[field] = value
    schedule = example.take("lr_scheduler")
    if schedule is not None:
        draft.arguments["lr_scheduler_type"] = schedule
    options = example.take("accelerator_config")
    if options:
        draft.arguments["accelerator_config"] = options
    seed = example.take("seed")
    if seed is not None:
        draft.measure["seed"] = seed


def _translate_activations(example: Example, draft: Draft) -> None:
    """Checkpointing and offloading, with axolotl's own defaults."""
    checkpointing = example.take("gradient_checkpointing")
    offloading = example.take("activation_offloading")
    options = dict(example.take("gradient_checkpointing_kwargs") or {})
    # "offload" is axolotl's older way to write the second key.
    if checkpointing == "offload":
        offloading = True
    if offloading:
        # Beside an adapter, axolotl offloads in place of checkpointing. Both with TRL's manager.
        is_adapted = "adapter" in draft.axes
        draft.axes["activations"] = "offload" if is_adapted else "checkpoint_offload_streams"
        if offloading is not True:
            draft.miss(f"activations: activation_offloading: {offloading}")
    elif checkpointing:
        draft.axes["activations"] = _checkpointing(example, draft, options)


def _checkpointing(example: Example, draft: Draft, options: dict[str, Any]) -> str:
    is_reentrant = options.pop("use_reentrant", None)
    for name in options:
        draft.miss(f"activations: gradient_checkpointing_kwargs.{name}")
    if is_reentrant is None:
        # axolotl's default, with its exceptions.
        is_other = bool(example.take("unfrozen_parameters") or example.take("rl"))
        is_gemma4 = str(draft.model.get("architecture", "")).startswith("gemma4")
        is_reentrant = not (is_other or is_gemma4)
    return "checkpoint_reentrant" if is_reentrant else "checkpoint"


def _translate_attention(example: Example, draft: Draft) -> None:
    name = example.take("attn_implementation")
    # The older way to write the first of these.
    if example.is_on("flash_attention"):
        name = "flash_attention_2"
    if name is not None:
        draft.axes["attention"] = _ATTENTION.get(name, name)
    # axolotl's own attention of xformers leaves out the dropout that the architecture has.
    if name == "xformers" and draft.model.get("architecture") == "gpt2":
        draft.model["config"] = {**draft.model.get("config", {}), "attn_pdrop": 0.0}


def _translate_compilation(example: Example, draft: Draft) -> None:
    mode = example.take("torch_compile_mode")
    if not example.is_on("torch_compile"):
        return
    names = {None: "inductor", "max-autotune-no-cudagraphs": "inductor_max_autotune"}
    names["reduce-overhead"] = "inductor_reduce_overhead"
    names["max-autotune"] = "inductor_max_autotune_cudagraphs"
    draft.axes["compile"] = names.get(mode, f"inductor in the mode {mode}")


def _translate_kernels(example: Example, draft: Draft) -> None:
    """What plugins replace in the model."""
    plugins = example.take("plugins") or []
    for plugin in plugins:
        if plugin not in _KNOWN_PLUGINS:
            draft.miss(f"plugin: {plugin.rpartition('.')[2]}")
    if example.take("cut_cross_entropy", _CCE_PLUGIN in plugins):
        draft.axes["loss"] = "cce"
    alpha, largest = example.number("eaft_alpha"), example.take("eaft_k")
    if example.is_on("use_eaft"):
        draft.axes["loss"] = {"eaft": {"alpha": alpha or 1.0, "k": largest or 20}}
    translate_liger(example, draft, has_plugin=_LIGER_PLUGIN in plugins)
    if example.is_on("use_kernels"):
        if "kernels" in draft.axes:
            draft.miss("kernels: those of the Hub together with Liger's")
        draft.axes["kernels"] = "hub"
    implementation = example.take("experts_implementation")
    if example.is_on("use_sonicmoe"):
        implementation = "sonicmoe"
    if implementation is not None:
        draft.axes["experts"] = implementation
