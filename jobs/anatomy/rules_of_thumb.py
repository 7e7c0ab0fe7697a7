"""The guides' rules of thumb as rows of data, and whether they held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobs.anatomy.memory.kinds import kind_of
from jobs.anatomy.time.operations import CONTRACTIONS, ELEMENTWISE, NORMALIZATIONS
from jobs.anatomy_record import Entry

GUIDE = "https://huggingface.co/docs/transformers/model_memory_anatomy"
PAPER = "Ivanov et al. 2020, Data Movement Is All You Need (arXiv 2007.00072), BERT on a V100"
WITHIN = 0.05
"""A rule held where it is met to within this, relative; the paper's shares and the guide's ratio are of one machine
and held to within a quarter."""
ROUGHLY = 0.25

Of = Literal["parameters_total", "parameters_trainable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """So many bytes a parameter for some kinds of memory, where the trial is of this sort. Source: ``GUIDE``."""

    name: str
    kinds: tuple[str, ...]
    bytes_a_parameter: int
    of: Of
    when: Mapping[str, tuple[str, ...]]
    """Column -> values; one of each must be the trial's."""
    of_whole_models: bool = False
    """Only where every parameter is trained."""


_FP32 = {"parameter_dtypes": ("float32",)}
_MIXED = {**_FP32, "autocast": ("bf16", "fp16")}
_ADAMW = {"optimizer_class": ("torch.AdamW",)}
_WEIGHTS, _COPIES, _STATES, _GRADIENTS = (
    "weights",
    "autocast copies of weights",
    "optimizer states",
    "gradients",
)

RULES = (
    Rule(
        name="weights, fp32",
        kinds=(_WEIGHTS,),
        bytes_a_parameter=4,
        of="parameters_total",
        when=_FP32,
    ),
    Rule(
        name="weights, mixed precision",
        kinds=(_WEIGHTS, _COPIES),
        bytes_a_parameter=6,
        of="parameters_total",
        when=_MIXED,
    ),
    Rule(
        name="gradients",
        kinds=(_GRADIENTS,),
        bytes_a_parameter=4,
        of="parameters_trainable",
        when=_FP32,
    ),
    Rule(
        name="optimizer states, AdamW",
        kinds=(_STATES,),
        bytes_a_parameter=8,
        of="parameters_trainable",
        when=_ADAMW,
    ),
    Rule(
        name="optimizer states, 8-bit AdamW",
        kinds=(_STATES,),
        bytes_a_parameter=2,
        of="parameters_trainable",
        when={
            "optimizer_class": (
                "bitsandbytes.AdamW",
                "bitsandbytes.AdamW8bit",
                "bitsandbytes.Adam8bit",
            )
        }
        | {"optimizer_state_dtypes": ("uint8", "uint8, float32")},
    ),
    Rule(
        name="optimizer states, SGD with momentum",
        kinds=(_STATES,),
        bytes_a_parameter=4,
        of="parameters_trainable",
        when={"optimizer_class": ("torch.SGD",), "optimizer_state_dtypes": ("float32",)},
    ),
    Rule(
        name="all but activations, mixed precision with AdamW",
        kinds=(_WEIGHTS, _COPIES, _GRADIENTS, _STATES),
        bytes_a_parameter=18,
        of="parameters_total",
        when={**_MIXED, **_ADAMW},
        of_whole_models=True,
    ),
)

SHARES: Mapping[str, float] = {CONTRACTIONS: 0.61, NORMALIZATIONS: 0.255, ELEMENTWISE: 0.135}
"""Group -> share of the three groups' time. Source: ``PAPER``."""
BACKWARD_TO_FORWARD = 2.0
"""Source: ``GUIDE``."""


def rules(most: Mapping[str, int], row: Mapping[str, Any]) -> Iterator[Entry]:
    """The part "rules" for the ``most`` bytes that each name held over a step of the trial with this ``row``, wherever.

    They speak of training on one device without DeepSpeed.
    """
    if "zero_stage" in row:
        return
    held: dict[str, int] = {}
    for name, nbytes in most.items():
        held[kind_of(name)] = held.get(kind_of(name), 0) + nbytes
    for rule in RULES:
        if not all(row.get(column) in values for column, values in rule.when.items()):
            continue
        if rule.of_whole_models and row["parameters_trainable"] != row["parameters_total"]:
            continue
        value = float(sum(held.get(kind, 0) for kind in rule.kinds))
        expected = float(rule.bytes_a_parameter * row[rule.of])
        words = f"{rule.bytes_a_parameter} B × {rule.of.replace('_', ' ')} ({GUIDE})"
        yield _judged(
            Entry(part="rules", name=rule.name, value=value, unit="B"), expected, words, WITHIN
        )


def shares(seconds: Mapping[str, float]) -> Iterator[Entry]:
    """The three groups' shares of their time beside the paper's."""
    together = sum(seconds.get(group, 0.0) for group in SHARES)
    for group, expected in SHARES.items() if together else ():
        value = seconds.get(group, 0.0) / together
        name = f"{group}, share of the three groups"
        yield _judged(
            Entry(part="rules", name=name, value=value, unit=""), expected, PAPER, ROUGHLY
        )


def ratio(backward_to_forward: float) -> Entry:
    """The time of the backward pass over the forward's beside the guide's."""
    entry = Entry(part="rules", name="backward / forward", value=backward_to_forward, unit="")
    return _judged(entry, BACKWARD_TO_FORWARD, f"about twice the forward pass ({GUIDE})", ROUGHLY)


def same_peak(peak: int, row: Mapping[str, Any]) -> Iterator[Entry]:
    """Whether the profiled step is like those that were counted: its peak beside the row's."""
    if counted := row.get("peak_allocated_bytes"):
        entry = Entry(part="rules", name="peak of the profiled step", value=float(peak), unit="B")
        yield _judged(entry, float(counted), "the counted steps' peak", 0.001)


def _judged(entry: Entry, expected: float, rule: str, within: float) -> Entry:
    held = bool(expected) and abs(entry.value / expected - 1) <= within
    return Entry(
        part=entry.part,
        name=entry.name,
        value=entry.value,
        unit=entry.unit,
        expected=expected,
        rule=rule,
        held=held,
    )
