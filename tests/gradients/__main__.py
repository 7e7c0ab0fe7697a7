"""Counts the planted faults that are found, and the alarms in configurations without a fault.

``python -m tests.gradients faults`` and ``python -m tests.gradients clean 200 [--seed 0]``, with
``--in-4-bits`` on a quantized base; both
print a line for each trial and end with 1 if a fault was missed or an alarm was false.
"""

import argparse
import contextlib
import io
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.gradient_check import GradientCheck
from jobs.record import Outcome, TrialRecord
from jobs.spec import DataSpec, Hook, ModelSpec, SyntheticData, TrialSpec
from jobs.trial.run import run
from tests.conftest import build_tiny_spec
from tests.gradients.faults import FAULTS
from tests.support.tiny_decoders import LLAMA, PADDED, RAGGED

GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 128, "n_positions": 64}
VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}
MODELS: Mapping[str, ModelSpec | None] = {
    "bert": None,
    "llama": ModelSpec(task="causal-lm", architecture="llama", config=LLAMA),
    "qwen3": ModelSpec(task="causal-lm", architecture="qwen3", config={**LLAMA, "head_dim": 16}),
    "gpt2": ModelSpec(task="causal-lm", architecture="gpt2", config=GPT2),
    "vit": ModelSpec(
        task="image-classification", architecture="vit", config={**VIT, "intermediate_size": 64}
    ),
}
AXES: Mapping[str, tuple[Any, ...]] = {
    "precision": ("fp32", "bf16", "bf16_weights"),
    "activations": ("keep", "checkpoint", "checkpoint_reentrant", "checkpoint_every_2"),
    "attention": ("auto", "eager", "sdpa"),
    "accumulation": (1, 2, 4),
    "adapter": ("none", "lora_r8", "lora_r8_all_linear"),
    "batching": ("pad", "padding_free", "packed", "packed_whole_rows"),
    "loss": ("plain", "chunked"),
    "loop": ("trainer", "accelerate"),
    "optimizer": ("adamw_torch", "sgd", "adafactor"),
    "micro_batch": (1, 2, 4),
}
IN_4_BITS = {"base": "bnb_4bit", "adapter": "lora_r8_all_linear"}
COMPILED = ("inductor_regional", "aot_eager", "inductor")
"""One configuration in forty is compiled, because compiling takes a hundred times as long."""


def of_model(
    name: str, choices: Mapping[str, Any], padded: bool = True, **config: Any
) -> TrialSpec:
    """A trial of one step whose gradients are compared."""
    spec = build_tiny_spec(choices, steps=1, inspect=False, gradients=True)
    model = MODELS[name]
    data = SyntheticData(samples=16)
    if name != "vit":
        data = PADDED if padded else RAGGED
    if name == "bert":
        data = SyntheticData(sequence_length=16, samples=40, padding=0.3)
    model = replace(model or spec.model, config={**(model or spec.model).config, **config})
    return replace(spec, model=model, data=DataSpec(synthetic=data))


def faulty(name: str) -> TrialSpec:
    """The trial in which a fault is planted."""
    choices: dict[str, Any] = {"micro_batch": 4}
    if "bf16" in name:
        choices["precision"] = "bf16"
    if "packed" in name:
        choices["batching"] = "padding_free"
    if "4bit" in name:
        choices |= IN_4_BITS
    if "accumulation" in name:
        choices |= {"accumulation": 2, "micro_batch": 2}
    config = {"tie_word_embeddings": True} if "uses tied" in name else {}
    spec = of_model("bert" if "bert" in name else "llama", choices, padded=False, **config)
    hooks = {**spec.settings.hooks, "regions": Hook("faults.gradients", {"fault": name})}
    return replace(spec, settings=replace(spec.settings, hooks=hooks))


def clean(seed: int, in_4_bits: bool = False) -> Iterator[tuple[str, TrialSpec]]:
    """Random configurations without a fault: the label and the trial. ``in_4_bits``: with a
    quantized base, which GPT-2 has in another layout."""
    draw = random.Random(seed)
    while True:
        name = draw.choice(list(MODELS))
        choices = {axis: draw.choice(values) for axis, values in AXES.items()}
        if name in ("bert", "vit"):
            choices |= {"batching": "pad", "loss": "plain"}
        # The plain loop leaves the model's cache on, and rows that share a sequence leak then.
        if choices["batching"] != "pad":
            choices["loop"] = "trainer"
        if draw.random() < 1 / 40:
            choices |= {"compile": draw.choice(COMPILED), "activations": "keep"}
        if in_4_bits and name == "gpt2":
            continue
        choices |= IN_4_BITS if in_4_bits else {}
        label = " ".join(map(str, (name, *choices.values())))
        yield label, of_model(name, choices, padded=draw.random() < 0.5)


def record_of(spec: TrialSpec) -> TrialRecord:
    """A trial in this process, without its output."""
    quiet = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        return run(spec, lambda phase: None, scratch=Path(folder))


def line(label: str, record: TrialRecord) -> str:
    """A trial in a line: its errors, or why it has none."""
    check = GradientCheck.of(record.measurements)
    if check is None:
        reason = record.measurements.get("gradients_missing") or record.reason
        return f"{label}: {record.outcome}, not compared: {reason.splitlines()[0][:90]}"
    verdict = "agree" if check.agrees else "DIFFER"
    figures = f"{check.error:.2g} of {check.bound:.2g}, {check.error / check.bound:.2f}"
    return f"{label}: {verdict}: {figures} in {check.worst} ({check.tensors} tensors)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["faults", "clean"])
    parser.add_argument("number", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-4-bits", action="store_true")
    options = parser.parse_args()
    trials = ((name, faulty(name)) for name in FAULTS)
    if options.what == "clean":
        trials = clean(options.seed, options.in_4_bits)
    compared = wrong = 0
    for label, spec in trials:
        record = record_of(spec)
        check = GradientCheck.of(record.measurements) if record.outcome is Outcome.OK else None
        print(line(label, record), flush=True)
        compared += check is not None
        wrong += check is not None and not check.agrees
        if options.what == "clean" and compared == options.number:
            break
    print(f"{compared} compared: {wrong} differ, {compared - wrong} agree")
    return int(wrong != (len(FAULTS) if options.what == "faults" else 0))


if __name__ == "__main__":
    sys.exit(main())
