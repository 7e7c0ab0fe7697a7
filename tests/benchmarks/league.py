"""Estimates of memory before a training, on equal rows: ours, and what others publish.

    python -m tests.benchmarks.league [--misses]

The rows are recorded runs of docs/results, and public reports (tests/data/league). Our figures are
files that were committed before they were compared; the others are formulas. ``--misses`` also
prints each row that our interval does not hold or that we do not answer.
"""

import argparse
import collections
import csv
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.analysis.dataset import Dataset
from orchestrator.prediction.prediction import CARDS
from orchestrator.storage.tables.rows import Row
from orchestrator.units import GIB
from tests.benchmarks.recorded.configurations import identity, measured_rows, recorded_runs
from tests.benchmarks.recorded.runs import read_predictions
from tests.support.commands import ROOT

PUBLIC = ROOT / "tests/data/league"
RECORDED = ROOT / "tests/data/predictions/recorded.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A training with a measured memory. Sizes that are not known are 0."""

    name: str
    method: str
    """full, lora, qlora, or another adapter."""
    format: str
    """fp32; mixed: 32-bit weights, 16-bit arithmetic; 16bit: 16-bit weights."""
    adam: bool
    """Whether the optimizer is an Adam with 32-bit states for 32-bit weights."""
    offload: str = ""
    """DeepSpeed's, as zero2_cpu_optimizer; empty without DeepSpeed."""
    parameters: int = 0
    layers: int = 0
    hidden: int = 0
    ffn: int = 0
    vocabulary: int = 0
    tokens: int = 0
    """Of a micro-batch."""
    rank: int = 0
    measured: int = 0
    """Bytes of ``kind``; 0: out of memory."""
    kind: str = "allocated"
    device: int = 0
    """Bytes of the whole GPU, or the most that is known of them; 0: out of memory."""
    ours: Row = field(default_factory=dict)
    """Our prediction; empty: none."""


def accelerate(case: Case) -> float | None:
    """``accelerate estimate-memory``: the largest part of a training with Adam, weights in 32 bits.

    Source: accelerate/commands/estimate.py. It has no adapters and no activations.
    """
    if case.method != "full" or not case.adam:
        return None
    from accelerate.commands.estimate import estimate_training_usage

    name = "float32" if case.format == "fp32" else "bfloat16"
    return float(max(estimate_training_usage(4 * case.parameters, name).values()))


def deepspeed(case: Case) -> float | None:
    """``estimate_zero2_model_states_mem_needs`` and its like at stage 3, for one GPU: model states
    alone. Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py."""
    if case.method != "full" or not case.offload:
        return None
    if case.offload == "zero3_cpu_both":
        return 4.0 * case.vocabulary * case.hidden  # the largest layer
    if "cpu" in case.offload:
        return 2.0 * case.parameters
    return (18.0 if "zero3" in case.offload else 20.0) * case.parameters


def rule_of_18(case: Case) -> float | None:
    """Bytes of weights, gradients and Adam's states: 18 in mixed precision, 16 in 32 bits.

    Source: Hugging Face's guide to the anatomy of a training. Activations are not in it.
    """
    if case.method != "full" or not case.adam or case.format == "16bit":
        return None
    return (16.0 if case.format == "fp32" else 18.0) * case.parameters


def megatron(case: Case) -> float | None:
    """Model states of 18 bytes a parameter, 34 bytes of activations for each value of a layer.

    Source: Megatron-LM@00caa53:megatron/training/theoretical_memory_usage.py, without parallelism;
    5 % are added to the activations. Megatron-Bridge has the same. Checkpointing is not in it.
    """
    if case.method != "full" or not case.adam or not case.layers or not case.tokens:
        return None
    values = case.tokens * case.hidden
    logits = case.tokens * case.vocabulary
    activations = 34 * values * case.layers + 8 * case.tokens + values + 2 * (logits + values)
    return 18.0 * case.parameters + 1.05 * activations


def training_hub(case: Case) -> float | None:
    """Full, LoRA and QLoRA, with 10 % on top. Everything is in 32 bits for full, in 16 for LoRA.

    Source: Red-Hat-AI-Innovation-Team/training_hub@067a002:src/training_hub/profiling/
    memory_estimator.py, the expected value. An adapter is on the seven matrices of each layer.
    """
    if case.method not in ("full", "lora", "qlora") or not case.layers or not case.tokens:
        return None
    element = 4 if case.method == "full" else 2
    activations = element * case.tokens * case.layers * case.hidden
    logits = element * case.tokens * case.vocabulary
    if case.method == "full":
        return 1.1 * (16 * case.parameters + activations + logits * 8 / 3)
    adapters = case.rank * case.layers * (11 * case.hidden + 3 * case.ffn)
    weights = (2 if case.method == "lora" else 0.5) * case.parameters
    states = (4 + 2 * element) * adapters
    subtotal = weights + states + activations + max(2 * logits, element * adapters)
    # Its QLoRA never needs less than a byte a parameter.
    return max(1.1 * subtotal, case.parameters * (case.method == "qlora"))


def ours(case: Case) -> float | None:
    return case.ours.get(f"{case.kind}_bytes")


TOOLS: Mapping[str, Callable[[Case], float | None]] = {
    "this program": ours,
    "accelerate estimate-memory": accelerate,
    "DeepSpeed's estimates": deepspeed,
    "18 bytes a parameter": rule_of_18,
    "Megatron-LM": megatron,
    "training_hub": training_hub,
}


def is_false_fit(case: Case, tool: str, estimate: float) -> bool:
    """Whether the tool says that the training fits one of ``CARDS`` that it does not fit."""
    for card, size in CARDS.items():
        fits = estimate <= size
        if tool == "this program":
            fits = case.ours[f"fits_{card}_gb"] == "yes"
        # Recorded trials that ran out of memory did so on the largest card.
        too_small = case.device > size if case.device else card == max(CARDS)
        if fits and too_small:
            return True
    return False


def table(cases: Sequence[Case]) -> Iterator[str]:
    """Markdown: share answered, errors of the figure that was measured, false fits."""
    yield "| tool | answered | median error | worst error | false fits |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, estimate in TOOLS.items():
        answers = [(case, value) for case in cases if (value := estimate(case))]
        errors = [abs(value / case.measured - 1) for case, value in answers if case.measured]
        middle = f"{statistics.median(errors):.1%}" if errors else ""
        worst = f"{max(errors):.1%}" if errors else ""
        false = sum(is_false_fit(case, name, value) for case, value in answers)
        share = f"{len(answers)} of {len(cases)}"
        yield f"| {name} | {share} | {middle} | {worst} | {false} |"


def misses(cases: Sequence[Case]) -> Iterator[str]:
    """Rows outside of our interval, and the number of unanswered ones by reason."""
    unanswered: Counter[str] = Counter()
    for case in cases:
        value = ours(case)
        if value is None:
            unanswered[case.ours.get("unknown", "it ran out of memory on another card")] += 1
        elif case.measured:
            low, high = (case.ours[f"{case.kind}_{end}"] for end in ("low", "high"))
            if not low <= case.measured <= high:
                sizes = f"{value / GIB:.2f} ({low / GIB:.2f} to {high / GIB:.2f}) GiB"
                yield f"{case.name}: {case.kind} {case.measured / GIB:.2f} GiB, predicted {sizes}"
    yield from (f"unanswered, {rows} rows: {why}" for why, rows in unanswered.most_common())


def public_cases() -> Iterator[Case]:
    """The rows of tests/data/league/public.csv, each with our prediction if there is a config."""
    predicted, _ = read_predictions(PUBLIC / "predicted.parquet")
    by_config: dict[str, list[Row]] = {}
    for row in predicted:
        by_config.setdefault(row["config"], []).append(row)
    with (PUBLIC / "public.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            sizes = {name: int(row[name] or 0) for name in ("parameters", "layers", "hidden")}
            own: Row = {"unknown": f"trained with {row['tool']}"}
            if row["config"]:
                own = by_config[row["config"]][int(row["trial"])]
            measured = int(float(row["bytes"] or row["device_bytes"] or 0))
            yield Case(
                name=f"{row['model']}, {row['method']}, batch {row['batch']}, {row['gpu']}",
                method=row["method"],
                format=row["format"],
                adam=True,
                ffn=int(row["ffn"] or 0),
                vocabulary=int(row["vocabulary"] or 0),
                tokens=int(row["batch"] or 0) * int(row["tokens"] or 0),
                rank=int(float(row["rank"] or 0)),
                measured=measured,
                kind=row["kind"],
                device=int(row["device_bytes"] or 0) or measured,
                ours=own,
                **sizes,
            )


def recorded_cases(folder: Path) -> Iterator[Case]:
    """Each configuration of the recorded runs that was predicted, with its first row."""
    predicted, _ = read_predictions(RECORDED)
    by_key = {(own["config"], identity(json.loads(own["choices"]))): own for own in predicted}
    for dataset in recorded_runs(folder):
        sizes = _sizes(dataset)
        for measured in measured_rows(dataset):
            own = by_key.pop((measured.group, identity(measured.row)), None)
            if own is not None:
                yield _recorded_case(dataset.name, measured.row, own, sizes)


def _recorded_case(run: str, row: Row, own: Row, sizes: Mapping[str, int]) -> Case:
    # An older table lacks the columns of newer axes.
    row = collections.defaultdict(int, row)
    is_ok = row["outcome"] == Outcome.OK
    choices = {name: axis.default for name, axis in AXES.items()}
    choices |= json.loads(own["choices"])
    precision, adapter = str(choices["precision"]), str(choices["adapter"])
    formats = {"fp32": "fp32", "tf32": "fp32", "bf16": "mixed", "fp16": "mixed"}
    offload = str(choices["offload"])
    return Case(
        name=f"{run}: {own['choices']}",
        method="full" if adapter == "none" else "lora" if adapter.startswith("lora") else adapter,
        format=formats.get(precision.removesuffix("_tf32"), "16bit"),
        adam=choices["optimizer"] in ("adamw_torch_fused", "adamw_torch", "adamw_foreach"),
        offload="" if offload == "none" else offload,
        parameters=int(row["parameters_total"] or 0),
        tokens=int(choices["micro_batch"]) * sizes["tokens"],
        rank=64 if "64" in adapter else 8,
        **{name: sizes[name] for name in ("layers", "hidden", "ffn", "vocabulary")},
        measured=int(row["peak_allocated_bytes"] or 0) if is_ok else 0,
        device=int(row["device_peak_bytes"] or 0) if is_ok else 0,
        ours=own,
    )


def _sizes(dataset: Dataset) -> dict[str, int]:
    """Layers, widths and vocabulary of a run's model and the tokens of a row; 0: it has none."""
    from transformers import AutoConfig

    model: dict[str, Any] = dict(dataset.run.config["model"])
    config = AutoConfig.for_model(model["architecture"], **model.get("config", {}))
    names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size"}
    names["vocabulary"] = "vocab_size"
    sizes = {name: getattr(config, own, 0) for name, own in names.items()}
    sizes["tokens"] = (dataset.run.config["data"].get("synthetic") or {}).get("sequence_length")
    return {name: size if isinstance(size, int) else 0 for name, size in sizes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.league")
    parser.add_argument("--misses", action="store_true", help="also print what we miss")
    options = parser.parse_args()
    recorded = list(recorded_cases(ROOT / "docs/results"))
    for title, cases in (("recorded", recorded), ("public", list(public_cases()))):
        print(f"\n{title}: {len(cases)} rows")
        print("\n".join(table(cases)))
        if options.misses:
            print("\n".join(misses(cases)))


if __name__ == "__main__":
    main()
