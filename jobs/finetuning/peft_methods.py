"""The methods of PEFT, each with the configuration class whose fields are its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """One method of PEFT."""

    class_name: str
    """Its configuration class, in the module ``config`` of the method's own package."""
    doc: str
    reads_text: bool = False
    """Whether it adds virtual tokens to a text. Only models of text can have such an adapter."""
    traits: tuple[str, ...] = ()


METHODS: Mapping[str, Method] = {
    "lora": Method(
        "LoraConfig",
        "LoRA: two low-rank matrices beside each target layer; DoRA and rsLoRA are its parameters",
    ),
    "adalora": Method(
        "AdaLoraConfig",
        "AdaLoRA: a low-rank update as a singular value decomposition; its ranks stay at init_r, "
        "because the Trainer does not call its rank allocator",
    ),
    "vera": Method(
        "VeraConfig", "VeRA: scaling vectors around random matrices that all layers share"
    ),
    "ia3": Method("IA3Config", "IA3: vectors that scale keys, values and the feed-forward layer"),
    "loha": Method("LoHaConfig", "LoHa: the element-wise product of two low-rank updates"),
    "lokr": Method("LoKrConfig", "LoKr: an update that is a Kronecker product"),
    "oft": Method("OFTConfig", "OFT: the weights times a block-diagonal orthogonal matrix"),
    "boft": Method("BOFTConfig", "BOFT: OFT whose rotation is a product of sparse factors"),
    "hra": Method("HRAConfig", "HRA: the weights times a chain of Householder reflections"),
    "fourierft": Method("FourierFTConfig", "FourierFT: a few Fourier coefficients of the update"),
    "vblora": Method("VBLoRAConfig", "VB-LoRA: low-rank updates composed from one bank of vectors"),
    "randlora": Method("RandLoraConfig", "RandLoRA: a full-rank sum of scaled random matrices"),
    "miss": Method(
        "MissConfig", "MiSS: one small matrix that all shards of a layer's weights share"
    ),
    "shira": Method("ShiraConfig", "SHiRA: a small share of each layer's own weights"),
    "c3a": Method("C3AConfig", "C3A: an update by circular convolution"),
    "road": Method("RoadConfig", "RoAd: rotations of pairs of each layer's outputs"),
    "ln_tuning": Method("LNTuningConfig", "LN tuning: only the layer norms are trained"),
    "prompt_tuning": Method(
        "PromptTuningConfig", "Prompt tuning: trained embeddings before the text", reads_text=True
    ),
    "p_tuning": Method(
        "PromptEncoderConfig",
        "P-tuning: embeddings before the text, made by a small trained network",
        reads_text=True,
    ),
    "prefix_tuning": Method(
        "PrefixTuningConfig",
        "Prefix tuning: trained keys and values before those of the text, in every layer",
        reads_text=True,
        traits=("key_value_prefix",),
    ),
}
