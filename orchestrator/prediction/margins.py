"""Techniques whose traces are less exact than others: by how much, and why, one row each."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from jobs.spec import TrialSpec
from jobs.techniques.hooks import hook_name
from orchestrator.prediction.prediction import Figure, Prediction
from orchestrator.prediction.streams.affine_stream import EVEN_ROUTING, FLASH
from orchestrator.prediction.unsupported import (
    PLAIN_LORA,
    has_images,
    kept_on_host,
    multiplies_integers,
    runs_trl,
    waits_on_host,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Margin:
    applies: Callable[[TrialSpec, Container[str]], bool]
    """Of a trial, and what its trace recorded among its kernels."""
    share: float
    """By which the interval of every figure grows, below and above."""
    note: str


def _is_other_adapter(spec: TrialSpec, _: object) -> bool:
    if hook_name(spec, "model") != "peft_adapter":
        return False
    arguments = spec.settings.hooks["model"].arguments
    return arguments["method"] != "lora" or not PLAIN_LORA.issuperset(arguments["parameters"])


def _runs_a_packages_attention(spec: TrialSpec, kernels: Container[str]) -> bool:
    return FLASH in kernels or hook_name(spec, "kernels") == "xformers_attention"


def _multiplies_experts_in_a_batch(spec: TrialSpec, _: object) -> bool:
    return spec.settings.model_kwargs.get("experts_implementation") == "batched_mm"


def _gathers_weights(spec: TrialSpec, _: object) -> bool:
    return "param" in kept_on_host(spec)


def _may_have_many_outliers(spec: TrialSpec, _: object) -> bool:
    """Whether random weights decide which features LLM.int8() keeps in 16 bits."""
    is_random = spec.model.name_or_path is None
    if not (is_random and multiplies_integers(spec)):
        return False
    return bool(spec.settings.hooks["base"].arguments["parameters"].get("llm_int8_threshold", 6))


def _rounds_to_blocks(spec: TrialSpec, _: object) -> bool:
    """Whether torchao multiplies in MXFP4 or NVFP4, or as if it did."""
    rounding = spec.settings.hooks.get("rounding")
    return rounding is not None and rounding.arguments["scheme"] in ("mxfp4", "nvfp4")


_UNCOMPARED: Mapping[str, Callable[[TrialSpec, Container[str]], bool]] = {
    "attention: what these kernels take follows from their source, and": _runs_a_packages_attention,
    "experts: batched_mm": _multiplies_experts_in_a_batch,
    "adapter: this one": _is_other_adapter,
    "loop: TRL on several GPUs, or under DeepSpeed,": lambda spec, _: (
        runs_trl(spec) and (spec.world_size > 1 or spec.settings.deepspeed is not None)
    ),
    "qat: a format of 4-bit blocks": _rounds_to_blocks,
    "images: the longest rows stand for all, which": lambda spec, _: (
        has_images(spec) and spec.may_be_ragged
    ),
}
"""What no recorded run has -> the trials that have it."""
_MARGINS = (
    # The recorded peaks of 24 configurations are within 2.1 % of their traces.
    Margin(
        applies=lambda _, kernels: EVEN_ROUTING in kernels,
        share=0.03,
        note="experts: the trace gives every expert as many tokens, so the interval is wider",
    ),
    # The recorded peaks of 33 configurations are within 4.4 % of their traces.
    Margin(
        applies=lambda spec, _: runs_trl(spec),
        share=0.03,
        note="loop: TRL's own code was traced, and compared with few trials on a GPU, so the "
        "interval is wider",
    ),
    Margin(
        applies=_gathers_weights,
        share=0.15,
        note="offload: weights that come from the host have segments of their own, of which three "
        "trials took 11 to 17 % more than predicted, so the interval is wider",
    ),
    Margin(
        applies=lambda spec, _: waits_on_host(spec),
        share=0.05,
        note="activations: of three trials that keep some on the host, one reserved 8 % less than "
        "predicted, so the interval is wider",
    ),
    Margin(
        applies=lambda spec, _: spec.settings.training_arguments.get("optim") == "adamw_torch_4bit",
        share=0.15,
        note="optimizer: torchao compiles buffers that are not traced, with which a trial reserved "
        "13 % more than predicted, so the interval is wider",
    ),
    Margin(
        applies=_may_have_many_outliers,
        share=0.25,
        note="base: few features of trained weights have outliers in 8 bits, as is traced; with "
        "random weights of wide layers a trial took 25 % more, so the interval is wider",
    ),
    # Ten times the share of techniques that have a recorded run.
    *(
        Margin(
            applies=applies,
            share=0.1,
            note=f"{what} was never compared with a GPU, so the interval is wider",
        )
        for what, applies in _UNCOMPARED.items()
    ),
)


def widened(prediction: Prediction, spec: TrialSpec, kernels: Container[str]) -> Prediction:
    """The prediction with the margins, and the notes, of all techniques of the trial."""
    for margin in _MARGINS:
        if margin.applies(spec, kernels):
            prediction = _widened(prediction, margin)
    return prediction


def _widened(prediction: Prediction, margin: Margin) -> Prediction:
    def wider(figure: Figure | None) -> Figure | None:
        if figure is None:
            return None
        low, high = figure.low * (1 - margin.share), figure.high * (1 + margin.share)
        return replace(figure, low=int(low), high=int(high))

    elsewhere = prediction.elsewhere
    if elsewhere is not None:
        elsewhere = replace(
            elsewhere,
            least=int(elsewhere.least * (1 - margin.share)),
            high=int(elsewhere.high * (1 + margin.share)),
        )
    return replace(
        prediction,
        allocated=wider(prediction.allocated),
        reserved=wider(prediction.reserved),
        device=wider(prediction.device),
        trial_device=wider(prediction.trial_device),
        elsewhere=elsewhere,
        notes=(*prediction.notes, margin.note),
    )
