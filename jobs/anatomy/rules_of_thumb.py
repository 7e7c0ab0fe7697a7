"""Published rules of thumb for memory and time as rows of data, and whether a trial met them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobs.anatomy.time.operations import CONTRACTIONS, ELEMENTWISE, NORMALIZATIONS
from jobs.anatomy_record import Entry, kind_of

GUIDE = "https://huggingface.co/docs/transformers/model_memory_anatomy"
PAPER = "Ivanov et al. 2020, Data Movement Is All You Need (arXiv 2007.00072), BERT on a V100"

ROUGHLY = 0.25
"""A rule about time holds if the figure differs by at most this share, which is a choice."""


@dataclass(frozen=True, slots=True)
class RuleOfThumb:
    """Bytes per parameter that some kinds of memory take in some trials. Source: ``GUIDE``."""

    name: str
    kinds: tuple[str, ...]
    bytes_per_parameter: int
    parameters: Literal["parameters_total", "parameters_trainable"]  # the column that counts them
    applies_to: Mapping[str, tuple[str, ...]]  # column -> values, one of which the trial must have


_FP32 = {"parameter_dtypes": ("float32",)}
_MIXED = {**_FP32, "autocast": ("bf16", "fp16")}
_ADAMW = {"optimizer_class": ("torch.AdamW",)}
_ADAMW_8BIT = {
    "optimizer_class": ("bitsandbytes.AdamW", "bitsandbytes.AdamW8bit", "bitsandbytes.Adam8bit"),
    "optimizer_state_dtypes": ("uint8", "uint8, float32"),
}
_SGD_MOMENTUM = {"optimizer_class": ("torch.SGD",), "optimizer_state_dtypes": ("float32",)}
_TWICE = ("weights", "autocast copies of weights")
_STATES = ("optimizer states",)
_ALL_BUT_ACTIVATIONS = (*_TWICE, "gradients", *_STATES)
_ALL_NAME = "all but activations, mixed precision with AdamW"

RULES = (
    RuleOfThumb("weights, fp32", ("weights",), 4, "parameters_total", _FP32),
    RuleOfThumb("weights, mixed precision", _TWICE, 6, "parameters_total", _MIXED),
    RuleOfThumb("gradients", ("gradients",), 4, "parameters_trainable", _FP32),
    RuleOfThumb("optimizer states, AdamW", _STATES, 8, "parameters_trainable", _ADAMW),
    RuleOfThumb("optimizer states, 8-bit AdamW", _STATES, 2, "parameters_trainable", _ADAMW_8BIT),
    RuleOfThumb(
        "optimizer states, SGD with momentum", _STATES, 4, "parameters_trainable", _SGD_MOMENTUM
    ),
    RuleOfThumb(_ALL_NAME, _ALL_BUT_ACTIVATIONS, 18, "parameters_total", _MIXED | _ADAMW),
)

SHARES: Mapping[str, float] = {CONTRACTIONS: 0.61, NORMALIZATIONS: 0.255, ELEMENTWISE: 0.135}
"""Group of operations -> its share of the three groups' time. Source: ``PAPER``."""


def memory_rules(peak_by_name: Mapping[str, int], row: Mapping[str, Any]) -> Iterator[Entry]:
    """Entries of the part "rules", for the most bytes that each name held over a step."""
    if "zero_stage" in row:  # the rules are about training without DeepSpeed
        return
    nbytes_by_kind: Counter[str] = Counter()
    for name, nbytes in peak_by_name.items():
        nbytes_by_kind[kind_of(name)] += nbytes
    for rule in RULES:
        if _applies(rule, row):
            value = sum(nbytes_by_kind[kind] for kind in rule.kinds)
            expected = rule.bytes_per_parameter * row[rule.parameters]
            counted = rule.parameters.replace("_", " ")
            words = f"{rule.bytes_per_parameter} B × {counted} ({GUIDE})"
            yield _compared(rule.name, value, "B", expected, words, 0.05)


def _applies(rule: RuleOfThumb, row: Mapping[str, Any]) -> bool:
    # A rule about all memory assumes gradients and states for every parameter.
    trains_everything = row["parameters_trainable"] == row["parameters_total"]
    if rule.kinds == _ALL_BUT_ACTIVATIONS and not trains_everything:
        return False
    return all(row.get(column) in values for column, values in rule.applies_to.items())


def time_shares(seconds: Mapping[str, float]) -> Iterator[Entry]:
    """Each group's share of the three groups' time together, compared with the paper's shares."""
    total = sum(seconds.get(group, 0.0) for group in SHARES)
    if not total:
        return
    for group, expected in SHARES.items():
        # The paper's shares leave out data movement and the update, so these do as well.
        share = seconds.get(group, 0.0) / total
        yield _compared(f"{group}, share of the three groups", share, "", expected, PAPER, ROUGHLY)


def backward_ratio(ratio: float) -> Entry:
    """Time of the backward pass over that of the forward pass, compared with the guide's."""
    source = f"about twice the forward pass ({GUIDE})"
    return _compared("backward / forward", ratio, "", 2.0, source, ROUGHLY)


def peak_check(peak_bytes: int, row: Mapping[str, Any]) -> Iterator[Entry]:
    """Compares the peaks of the profiled and the counted steps, which should agree."""
    if counted := row.get("peak_allocated_bytes"):
        name, rule = "peak of the profiled step", "the counted steps' peak"
        yield _compared(name, peak_bytes, "B", counted, rule, within=0.001)


def _compared(
    name: str, value: float, unit: str, expected: float, rule: str, within: float
) -> Entry:
    return Entry(
        part="rules",
        name=name,
        value=float(value),
        unit=unit,
        expected=float(expected),
        rule=rule,
        # The relative difference decides. A rule that expects zero cannot hold.
        held=bool(expected) and abs(value / expected - 1) <= within,
    )
