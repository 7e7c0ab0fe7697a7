"""Published rules of thumb for memory and time as rows of data, and whether a trial met them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from jobs.anatomy.memory.kinds import kind_of
from jobs.anatomy.time.operations import CONTRACTIONS, ELEMENTWISE, NORMALIZATIONS
from jobs.anatomy_record import Entry

GUIDE = "https://huggingface.co/docs/transformers/model_memory_anatomy"
PAPER = "Ivanov et al. 2020, Data Movement Is All You Need (arXiv 2007.00072), BERT on a V100"

WITHIN = 0.05
"""A rule about memory holds if the measured bytes differ from it by at most this share."""
ROUGHLY = 0.25
"""The same for rules about time. It is a choice, not a fit, and larger: the paper's shares and the
guide's ratio were each found on a single machine."""
SAME_PEAK_WITHIN = 0.001
"""The same for the peak of the profiled step compared with the counted ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOfThumb:
    """Bytes per parameter that some kinds of memory take in some trials. Source: ``GUIDE``."""

    name: str
    kinds: tuple[str, ...]
    bytes_per_parameter: int
    parameters: Literal["parameters_total", "parameters_trainable"]
    """The column that counts them."""
    applies_to: Mapping[str, tuple[str, ...]]
    """Column -> values, one of which the trial must have."""
    only_full_training: bool = False
    """It applies only if every parameter is trained."""


_WEIGHTS = "weights"
_COPIES = "autocast copies of weights"
_GRADIENTS = "gradients"
_STATES = "optimizer states"

_FP32 = {"parameter_dtypes": ("float32",)}
_MIXED = {**_FP32, "autocast": ("bf16", "fp16")}
_ADAMW = {"optimizer_class": ("torch.AdamW",)}
_ADAMW_8BIT = {
    "optimizer_class": ("bitsandbytes.AdamW", "bitsandbytes.AdamW8bit", "bitsandbytes.Adam8bit"),
    "optimizer_state_dtypes": ("uint8", "uint8, float32"),
}
_SGD_MOMENTUM = {"optimizer_class": ("torch.SGD",), "optimizer_state_dtypes": ("float32",)}

RULES = (
    RuleOfThumb(
        name="weights, fp32",
        kinds=(_WEIGHTS,),
        bytes_per_parameter=4,
        parameters="parameters_total",
        applies_to=_FP32,
    ),
    RuleOfThumb(
        name="weights, mixed precision",
        kinds=(_WEIGHTS, _COPIES),
        bytes_per_parameter=6,
        parameters="parameters_total",
        applies_to=_MIXED,
    ),
    RuleOfThumb(
        name="gradients",
        kinds=(_GRADIENTS,),
        bytes_per_parameter=4,
        parameters="parameters_trainable",
        applies_to=_FP32,
    ),
    RuleOfThumb(
        name="optimizer states, AdamW",
        kinds=(_STATES,),
        bytes_per_parameter=8,
        parameters="parameters_trainable",
        applies_to=_ADAMW,
    ),
    RuleOfThumb(
        name="optimizer states, 8-bit AdamW",
        kinds=(_STATES,),
        bytes_per_parameter=2,
        parameters="parameters_trainable",
        applies_to=_ADAMW_8BIT,
    ),
    RuleOfThumb(
        name="optimizer states, SGD with momentum",
        kinds=(_STATES,),
        bytes_per_parameter=4,
        parameters="parameters_trainable",
        applies_to=_SGD_MOMENTUM,
    ),
    RuleOfThumb(
        name="all but activations, mixed precision with AdamW",
        kinds=(_WEIGHTS, _COPIES, _GRADIENTS, _STATES),
        bytes_per_parameter=18,
        parameters="parameters_total",
        applies_to={**_MIXED, **_ADAMW},
        only_full_training=True,
    ),
)

SHARES: Mapping[str, float] = {CONTRACTIONS: 0.61, NORMALIZATIONS: 0.255, ELEMENTWISE: 0.135}
"""Group of operations -> its share of the three groups' time. Source: ``PAPER``."""
BACKWARD_TO_FORWARD = 2.0
"""Time of the backward pass over that of the forward pass. Source: ``GUIDE``."""


def memory_rules(peak_by_name: Mapping[str, int], row: Mapping[str, Any]) -> Iterator[Entry]:
    """Entries of the part "rules" for a trial's memory.

    ``peak_by_name`` are the most bytes that each name held over a step, on device and host
    together. The rules are about training on one device without DeepSpeed: there are no entries
    for a trial with DeepSpeed.
    """
    if "zero_stage" in row:
        return
    nbytes_by_kind = _by_kind(peak_by_name)
    for rule in RULES:
        if _applies(rule, row):
            value = sum(nbytes_by_kind.get(kind, 0) for kind in rule.kinds)
            entry = Entry(part="rules", name=rule.name, value=float(value), unit="B")
            # Bytes per parameter times the number of parameters.
            expected = float(rule.bytes_per_parameter * row[rule.parameters])
            yield _compared(entry, expected, _in_words(rule), WITHIN)


def _by_kind(nbytes_by_name: Mapping[str, int]) -> dict[str, int]:
    """Bytes by kind of memory, from bytes by name."""
    nbytes_by_kind: dict[str, int] = {}
    for name, nbytes in nbytes_by_name.items():
        kind = kind_of(name)
        nbytes_by_kind[kind] = nbytes_by_kind.get(kind, 0) + nbytes
    return nbytes_by_kind


def _in_words(rule: RuleOfThumb) -> str:
    """The rule with its source, for the column ``rule``."""
    parameters = rule.parameters.replace("_", " ")
    return f"{rule.bytes_per_parameter} B × {parameters} ({GUIDE})"


def _applies(rule: RuleOfThumb, row: Mapping[str, Any]) -> bool:
    """Whether a rule is about trials like this row."""
    if any(row.get(column) not in values for column, values in rule.applies_to.items()):
        return False
    # A rule about all memory assumes gradients and states for every parameter.
    trains_everything = row["parameters_trainable"] == row["parameters_total"]
    return trains_everything or not rule.only_full_training


def time_shares(seconds: Mapping[str, float]) -> Iterator[Entry]:
    """Each group's share of the three groups' time together, compared with the paper's shares."""
    total = sum(seconds.get(group, 0.0) for group in SHARES)
    if not total:
        return
    for group, expected in SHARES.items():
        name = f"{group}, share of the three groups"
        # The paper's shares leave out data movement and the update, so these do as well.
        share = seconds.get(group, 0.0) / total
        entry = Entry(part="rules", name=name, value=share, unit="")
        yield _compared(entry, expected, PAPER, ROUGHLY)


def backward_ratio(ratio: float) -> Entry:
    """Time of the backward pass over that of the forward pass, compared with the guide's."""
    entry = Entry(part="rules", name="backward / forward", value=ratio, unit="")
    source = f"about twice the forward pass ({GUIDE})"
    return _compared(entry, BACKWARD_TO_FORWARD, source, ROUGHLY)


def peak_check(peak_bytes: int, row: Mapping[str, Any]) -> Iterator[Entry]:
    """Compares the profiled step's peak with that of the counted steps.

    If the peaks differ, the profiled step was not like the counted ones.
    """
    counted = row.get("peak_allocated_bytes")
    if counted:
        name = "peak of the profiled step"
        entry = Entry(part="rules", name=name, value=float(peak_bytes), unit="B")
        yield _compared(entry, float(counted), "the counted steps' peak", SAME_PEAK_WITHIN)


def _compared(entry: Entry, expected: float, rule: str, within: float) -> Entry:
    """The entry with what the rule expects, and whether it held."""
    # The relative difference decides. A rule that expects zero cannot hold.
    held = bool(expected) and abs(entry.value / expected - 1) <= within
    return replace(entry, expected=expected, rule=rule, held=held)
