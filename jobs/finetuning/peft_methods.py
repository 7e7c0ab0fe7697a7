"""The methods of PEFT, each with the configuration class whose fields are its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One method of PEFT."""

    doc: str
    config_class: str
    """``module:Class``."""
    reads_text: bool = False
    """Whether it adds virtual tokens to a text. Only models of text can have such an adapter."""
    traits: tuple[str, ...] = ()


def _tuner(folder: str, class_name: str, doc: str) -> Method:
    return Method(doc=doc, config_class=f"peft.tuners.{folder}.config:{class_name}")


def _prompt(folder: str, class_name: str, doc: str, *traits: str) -> Method:
    return Method(
        doc=doc,
        config_class=f"peft.tuners.{folder}.config:{class_name}",
        reads_text=True,
        traits=traits,
    )


METHODS: Mapping[str, Method] = {
    "lora": _tuner(
        "lora",
        "LoraConfig",
        "LoRA: two low-rank matrices beside each target layer; DoRA and rsLoRA are its parameters",
    ),
    "adalora": _tuner(
        "adalora",
        "AdaLoraConfig",
        "AdaLoRA: a low-rank update as a singular value decomposition; its ranks stay at init_r, "
        "because the Trainer does not call its rank allocator",
    ),
    "vera": _tuner(
        "vera", "VeraConfig", "VeRA: scaling vectors around random matrices that all layers share"
    ),
    "ia3": _tuner(
        "ia3", "IA3Config", "IA3: vectors that scale keys, values and the feed-forward layer"
    ),
    "loha": _tuner("loha", "LoHaConfig", "LoHa: the element-wise product of two low-rank updates"),
    "lokr": _tuner("lokr", "LoKrConfig", "LoKr: an update that is a Kronecker product"),
    "oft": _tuner("oft", "OFTConfig", "OFT: the weights times a block-diagonal orthogonal matrix"),
    "boft": _tuner("boft", "BOFTConfig", "BOFT: OFT whose rotation is a product of sparse factors"),
    "hra": _tuner("hra", "HRAConfig", "HRA: the weights times a chain of Householder reflections"),
    "fourierft": _tuner(
        "fourierft", "FourierFTConfig", "FourierFT: a few Fourier coefficients of the update"
    ),
    "vblora": _tuner(
        "vblora", "VBLoRAConfig", "VB-LoRA: low-rank updates composed from one bank of vectors"
    ),
    "randlora": _tuner(
        "randlora", "RandLoraConfig", "RandLoRA: a full-rank sum of scaled random matrices"
    ),
    "miss": _tuner(
        "miss", "MissConfig", "MiSS: one small matrix that all shards of a layer's weights share"
    ),
    "shira": _tuner("shira", "ShiraConfig", "SHiRA: a small share of each layer's own weights"),
    "c3a": _tuner("c3a", "C3AConfig", "C3A: an update by circular convolution"),
    "road": _tuner("road", "RoadConfig", "RoAd: rotations of pairs of each layer's outputs"),
    "ln_tuning": _tuner(
        "ln_tuning", "LNTuningConfig", "LN tuning: only the layer norms are trained"
    ),
    "prompt_tuning": _prompt(
        "prompt_tuning", "PromptTuningConfig", "Prompt tuning: trained embeddings before the text"
    ),
    "p_tuning": _prompt(
        "p_tuning",
        "PromptEncoderConfig",
        "P-tuning: embeddings before the text, made by a small trained network",
    ),
    "prefix_tuning": _prompt(
        "prefix_tuning",
        "PrefixTuningConfig",
        "Prefix tuning: trained keys and values before those of the text, in every layer",
        "key_value_prefix",
    ),
}
