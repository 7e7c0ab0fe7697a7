"""What Liger's plugin of axolotl replaces in a model, by its architecture."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example

_SWITCHES = {
    "liger_rope": "rope",
    "liger_rms_norm": "rms_norm",
    "liger_layer_norm": "layer_norm",
    "liger_glu_activation": "mlp",
}
"""Key of axolotl -> parameter of our Liger kernels."""
_KNOWN = frozenset(
    {
        *("deepseek_v2", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4"),
        *("glm4", "glm4v", "gpt_oss", "hunyuan_v1_dense", "internvl", "llama", "llama4", "llava"),
        *("ministral", "mistral", "mllama", "nemotron", "olmo3", "phi3", "qwen2", "qwen2_vl"),
        *("qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "smolvlm"),
    }
)
"""Architectures in the table of Liger 0.8.5, as far as the examples have them."""
_AXOLOTLS_OWN = {"gemma4_unified": "Gemma 4's unified architecture", "jamba": "Jamba"}
"""Architectures that Liger does not have, and that axolotl gives its kernels itself."""
_GATED_NORMS = ("qwen3_5", "qwen3_5_moe")
"""Architectures in which axolotl replaces the gated norms, too."""


def translate_liger(example: Example, draft: Draft, *, has_plugin: bool) -> None:
    """The kernels and the loss, unless the plugin that makes them is not loaded."""
    chosen = {name: example.is_on(key) for key, name in _SWITCHES.items()}
    gates_norms = example.is_on("liger_rms_norm_gated")
    fuses_loss = example.is_on("liger_fused_linear_cross_entropy")
    if not has_plugin:
        return
    if fuses_loss:
        draft.axes["loss"] = "liger"
    architecture = str(draft.model.get("architecture", ""))
    if architecture in _AXOLOTLS_OWN:
        draft.miss(f"kernels: Liger's in {_AXOLOTLS_OWN[architecture]}")
    elif gates_norms and architecture in _GATED_NORMS:
        draft.miss("kernels: axolotl's own for gated norms")
    # Elsewhere axolotl warns that it applies none.
    elif architecture in _KNOWN and any(chosen.values()):
        draft.axes["kernels"] = _value(chosen)


def _value(chosen: dict[str, bool]) -> Any:
    """The value of our axis: the name alone if nothing is left out."""
    left_out = {name: False for name, is_chosen in chosen.items() if not is_chosen}
    return {"liger": left_out} if left_out else "liger"
