"""Public rows of several GPUs of one node: forecasts first, then what was measured.

    python -m tests.benchmarks.league_ranks forecast FILE.parquet
    python -m tests.benchmarks.league_ranks compare FILE.parquet [--misses]

The rows are in tests/data/league/ranks/public.parquet. A forecast is of a step's seconds, and of
reserved memory where that was published. Those that FILE has are kept. Rows that have none are
counted by their reason.
"""

import argparse
import itertools
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import REPRESENTATIVES, Gpu, load_gpu
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.storage.tables.rows import Row

PUBLIC = Path(__file__).parents[2] / "tests/data/league/ranks/public.parquet"
_CARDS = yaml.safe_load((PUBLIC.parent / "cards.yaml").read_text())
"""As the sources write it -> a card that is known here, and what differs."""
_BERT = {"bert-base-uncased": (768, 12, 12), "bert-large-uncased": (1024, 24, 16)}
_BERT_PRECISION = {"fp16 (apex O2)": "fp16"}
_LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}


def card_of(row: Row) -> Gpu:
    constants = dict(_CARDS[row["card"]])
    return replace(load_gpu(constants.pop("like")), **constants)


def reason(row: Row) -> str:
    """Why a row has no forecast; empty if it has one."""
    tool = row["framework"]
    if row["nodes"] != 1:
        return "more than one node, or several without saying so"
    if "kind not stated" in row["kind"]:
        return "kind of memory not stated, of a model that transformers lacks"
    if "Megatron" in tool and "tp1 pp1" not in tool:
        return "Megatron-LM with tensor or pipeline parallelism"
    if "fsdp_qlora" in row["source"] and (row["method"] != "lora" or "offload" in tool):
        return "4-bit base or host offload under FSDP1, which has no configuration here"
    known = ("Megatron", "DeepLearningExamples", "PyTorch FSDP1")
    if not any(name in tool for name in known):
        return f"trained with {tool.split(',')[0].split()[0]}, which has no configuration here"
    return "" if row["card"] in _CARDS else "card not known here"


def _architecture(row: Row) -> dict[str, Any]:
    """Task and sizes of the row's model. The two labels of a token stand for a span's ends."""
    if sizes := _BERT.get(row["model"]):
        hidden, layers, heads = sizes
        config = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
        config |= {"intermediate_size": 4 * hidden}
        return {"task": "token-classification", "architecture": "bert", "config": config}
    if match := re.match(r"GPT hidden (\d+), (\d+) layers, (\d+) heads", row["model"]):
        hidden, layers, heads = map(int, match.groups())
        config = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": 50304}
        return {"task": "causal-lm", "architecture": "gpt2", "config": config}
    return {"task": "causal-lm", "architecture": "llama", "config": _LLAMA}


def _choices(row: Row) -> dict[str, Any]:
    choices: dict[str, Any] = {"sharding": "ddp", "micro_batch": row["batch"]}
    if "Megatron" in row["framework"]:
        ranks, whole = map(int, re.findall(r"dp(\d+).*global batch (\d+)", row["framework"])[0])
        # Two GPUs stand for all: only what they exchange depends on their number.
        choices["accumulation"] = max(1, whole // (ranks * row["batch"]))
        return {**choices, "precision": "fp16"}
    if row["model"] in _BERT:
        # Containers of NVIDIA turn TF32 on, which older GPUs lack.
        is_old = card_of(row).capability < 8.0
        in_32_bits = "fp32" if is_old else "tf32"
        return {**choices, "precision": _BERT_PRECISION.get(row["dtype"], in_32_bits)}
    if "full shard" in row["framework"]:
        choices["sharding"] = "fsdp2_full"
    adapter = {"lora": {"r": 64, "target_modules": "all-linear"}}
    lora = {"adapter": adapter, "base": "16bit", "activations": "checkpoint"}
    return {**choices, **lora, "precision": "bf16"}


def _key(row: Row) -> tuple[str, int, str]:
    """Equal for rows whose trials are in one configuration."""
    return str(_architecture(row)), row["tokens"], card_of(row).kernels


def forecasts(rows: Sequence[Row]) -> Iterator[Row]:
    answered = sorted((own for own in rows if not reason(own)), key=_key)
    for (_, tokens, kernels), group in itertools.groupby(answered, key=_key):
        own = list(group)
        trials = _trials(own, tokens)
        found = predict(list(trials), load_gpu(REPRESENTATIVES[kernels]))  # type: ignore[index]
        by_choices = {_batch_of(p.choices): p for p in found}
        for row in own:
            prediction = by_choices[_batch_of(_choices(row))]
            time = None
            if (step := prediction.step) is not None and step.sharing is not None:
                step = replace(step, sharing=replace(step.sharing, ranks=row["gpus"]))
                time = time_of(step, card_of(row))
            reserved = prediction.reserved
            yield {
                "number": row["number"],
                "unknown": prediction.unknown,
                "step_seconds": time and time.seconds,
                "step_seconds_low": time and time.low,
                "step_seconds_high": time and time.high,
                "step_bound": time and time.bound,
                "reserved_bytes": reserved and reserved.bytes,
                "reserved_low": reserved and reserved.low,
                "reserved_high": reserved and reserved.high,
            }
        print(own[0]["model"], kernels, len(own), flush=True)


def _batch_of(choices: Any) -> tuple[Any, ...]:
    names = ("sharding", "micro_batch", "accumulation", "precision")
    return tuple(str(choices.get(name, 1)) for name in names)


def _trials(rows: Sequence[Row], tokens: int) -> Sequence[TrialSpec]:
    wanted = {_batch_of(_choices(own)): _choices(own) for own in rows}
    config = {
        "model": _architecture(rows[0]),
        "data": {"synthetic": {"sequence_length": tokens, "samples": 65536}},
        "resources": {"gpus_per_trial": 2, "screen_gpus": False},
        "trials": list(wanted.values()),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(config, file)
        file.flush()
        return plan(load_config(Path(file.name))).trials


def compare(rows: Sequence[Row], forecast: Sequence[Row], *, misses: bool) -> Iterator[str]:
    unanswered = Counter(reason(own) for own in rows)
    answered = unanswered.pop("")
    yield f"{answered} of {len(rows)} rows have a forecast"
    yield from (f"{count} without: {why}" for why, count in unanswered.most_common())
    yield "| trained with | card | figure | rows | median error | nine of ten within | inside |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    kinds: dict[tuple[str, str, str], list[tuple[Row, Row]]] = {}
    by_number = {own["number"]: own for own in forecast}
    for row in rows:
        own = by_number.get(row["number"], {})
        for figure in _FIGURES:
            if own.get(figure) and row[figure]:
                tool = re.split(r" dp|[,;]", row["framework"])[0]
                kinds.setdefault((tool, row["card"], figure), []).append((row, own))
    for (tool, card, figure), pairs in sorted(kinds.items()):
        yield f"| {tool} | {card} | {figure} | {_errors(figure, pairs)} |"
    for (*_, figure), pairs in sorted(kinds.items()):
        if misses:
            yield from (_miss(figure, *own) for own in pairs if not _is_inside(figure, *own))


_FIGURES = {"step_seconds": "step_seconds", "reserved_bytes": "reserved"}
"""Figure -> the beginning of its interval's columns."""


def _is_inside(figure: str, row: Row, own: Row) -> bool:
    interval = _FIGURES[figure]
    return bool(own[f"{interval}_low"] <= row[figure] <= own[f"{interval}_high"])


def _miss(figure: str, row: Row, own: Row) -> str:
    low, high = (own[f"{_FIGURES[figure]}_{end}"] for end in ("low", "high"))
    name = f"{row['gpu']}, {row['model']}, {row['framework']}, batch {row['batch']}, {row['dtype']}"
    measured = f"{row[figure]:.4g}, predicted {own[figure]:.4g} ({low:.4g} to {high:.4g})"
    return f"{name}: {figure} {measured}"


def _errors(figure: str, pairs: Sequence[tuple[Row, Row]]) -> str:
    errors = sorted(abs(own[figure] / row[figure] - 1) for row, own in pairs)
    inside = sum(_is_inside(figure, *own) for own in pairs)
    nine = float(np.quantile(errors, 0.9))
    return f"{len(pairs)} | {statistics.median(errors):.1%} | {nine:.1%} | {inside}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.league_ranks")
    parser.add_argument("verb", choices=("forecast", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--misses", action="store_true", help="also each row outside its interval")
    options = parser.parse_args()
    rows = pq.read_table(PUBLIC).to_pylist()
    if options.verb == "compare":
        print(
            "\n".join(compare(rows, pq.read_table(options.file).to_pylist(), misses=options.misses))
        )
        return
    # Forecasts are not made again: they were committed before they were compared.
    known = pq.read_table(options.file).to_pylist() if options.file.exists() else []
    numbers = {own["number"] for own in known}
    known += forecasts([own for own in rows if own["number"] not in numbers])
    pq.write_table(pa.Table.from_pylist(known), options.file)


if __name__ == "__main__":
    main()
