"""Our batch_size beside its peers: time to an answer, and the throughput and headroom of what each picks.

    python -m tests.benchmarks.batch_size_peers [--output DIR] [--deadline 300] [--only SETTING ...]

Each peer searches in a fresh process, from 512 down or from 8 up as it does; what it picks is then measured by one
judge, a trial of ours. One that cannot be run is in the table with its error. ``--tiny`` is for machines without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.slot import Slot
from jobs.spec import TrialSpec, to_json
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
BERT = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
LLAMA = {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
CLASSIFIER = {"task": "sequence-classification", "architecture": "bert", "config": BERT}
CAUSAL = {"task": "causal-lm", "architecture": "llama", "config": {**LLAMA, "num_attention_heads": 12}}
SETTINGS: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "bf16": (CLASSIFIER, {}),
    "bf16, checkpointing": (CLASSIFIER, {"activations": "checkpoint"}),
    "LoRA": (CLASSIFIER, {"adapter": "lora_r8"}),
    "causal LM": (CAUSAL, {}),
}
PEERS = ("ours", "accelerate", "trainer", "lightning", "deepspeed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What came of one peer in one setting."""

    setting: str
    peer: str
    wall_seconds: float
    """From the start of its process to its end."""
    search_seconds: float | None = None
    """The same without imports; of ours the slot seconds of its trials."""
    micro_batch: int | None = None
    samples_per_second: float | None = None
    used_bytes: int | None = None
    device_bytes: int | None = None
    failure: str = ""


def write_config(setting: str, micro_batch: int, path: Path, *, tiny: bool) -> TrialSpec:
    """The setting as a sweep of one configuration, for all to read; the trial it plans."""
    model, choices = SETTINGS[setting]
    config = {**model["config"], **(TINY if tiny else {})}
    axes = {"precision": "bf16", "micro_batch": micro_batch, "optimizer": "adamw_torch_fused", **choices}
    document = {
        "model": {**model, "config": config},
        "data": {"synthetic": {"sequence_length": 32 if tiny else 512}},
        "axes": {axis: [value] for axis, value in axes.items()},
    }
    path.write_text(yaml.safe_dump(document))
    return plan(load_config(path), has_gpu=not tiny).trials[0]


def command_of(peer: str, config: Path, spec: Path, folder: Path, largest: int) -> list[str]:
    """What is run for a peer."""
    if peer == "ours":
        options = ["--json", "--fresh", "--output", str(folder / "ours"), "--max-micro-batch", str(largest)]
        return [sys.executable, "-m", "orchestrator.batch_size", str(config), *options]
    script = str(ROOT / "tests" / "benchmarks" / "peer.py")
    if peer == "deepspeed":
        settings = {
            "train_micro_batch_size_per_gpu": "auto",
            "bf16": {"enabled": True},
            "autotuning": {
                "enabled": True,
                "fast": True,
                "arg_mappings": {"train_micro_batch_size_per_gpu": "--micro-batch"},
            },
        }
        (folder / "deepspeed.json").write_text(json.dumps(settings))
        launch = ["-m", "deepspeed.launcher.runner", "--autotuning", "tune", "--num_gpus", "1", script]
        training = ["deepspeed_training", str(spec), str(largest), "--micro-batch", "8"]
        return [sys.executable, *launch, *training, "--deepspeed", "deepspeed.json"]
    return [sys.executable, script, peer, str(spec), str(largest)]


def answer_of(peer: str, output: str, folder: Path) -> tuple[int, float | None]:
    """The micro-batch picked, and the seconds of the search where they are told. Raises ValueError and LookupError."""
    if peer == "ours":
        answer = json.loads(output[output.index("{") :])["hardware"][0]["answers"][0]
        return int(answer["fastest"]["micro_batch"]), float(answer["slot_seconds"])
    if peer == "deepspeed":
        found = json.loads(next(folder.glob("**/ds_config_optimal.json")).read_text())
        return int(found["train_micro_batch_size_per_gpu"]), None
    told = json.loads(output.splitlines()[-1])
    return int(told["micro_batch"]), float(told["seconds"])


def search(peer: str, setting: str, folder: Path, deadline: float, *, tiny: bool) -> Result:
    """One peer's answer, unjudged."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = write_config(setting, 8, folder / "setting.yaml", tiny=tiny)
    (folder / "spec.json").write_text(json.dumps(to_json(spec)))
    command = command_of(peer, folder / "setting.yaml", folder / "spec.json", folder, 32 if tiny else 512)
    began = time.perf_counter()
    picked, seconds, failure = None, None, ""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
        (folder / "log.txt").write_text(f"{done.stdout}\n{done.stderr}")
        failure = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        picked, seconds = answer_of(peer, done.stdout, folder)
        failure = ""
    except subprocess.TimeoutExpired:
        failure = f"no answer in {deadline:g} s"
    except (ValueError, LookupError, TypeError, StopIteration) as error:
        failure = failure or repr(error)
    return Result(
        setting=setting,
        peer=peer,
        wall_seconds=time.perf_counter() - began,
        search_seconds=seconds,
        micro_batch=picked,
        failure=failure,
    )


def judged(result: Result, slot: Slot, folder: Path, *, tiny: bool) -> Result:
    """The answer with what a trial of ours measures at the micro-batch picked."""
    if result.micro_batch is None:
        return result
    spec = write_config(result.setting, result.micro_batch, folder / "judge.yaml", tiny=tiny)
    record = slot.run(spec, spec.measure.deadline_seconds)
    figures = record.measurements
    return Result(
        **{
            **asdict(result),
            "samples_per_second": figures.get("samples_per_second"),
            "used_bytes": figures.get("device_used_bytes"),
            "device_bytes": record.environment.get("gpu_memory_bytes"),
            "failure": "" if record.outcome == "ok" else f"its pick: {record.outcome}: {record.reason}"[:200],
        }
    )


def report(results: list[Result]) -> Iterator[str]:
    """Markdown."""
    yield "| setting | peer | s to answer | of it searching | micro-batch | samples/s | memory free | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for one in results:
        free = 1 - one.used_bytes / one.device_bytes if one.used_bytes and one.device_bytes else None
        figures = (
            f"{one.wall_seconds:.1f}",
            "" if one.search_seconds is None else f"{one.search_seconds:.1f}",
            str(one.micro_batch or ""),
            "" if one.samples_per_second is None else f"{one.samples_per_second:.1f}",
            "" if free is None else f"{free:.1%}",
        )
        yield f"| {one.setting} | {one.peer} | {' | '.join(figures)} | {one.failure.replace('|', ' ')} |"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.batch_size_peers")
    parser.add_argument("--output", type=Path, default=Path("runs/batch_size_peers"))
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds for each peer in each setting")
    parser.add_argument("--only", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--cpus", type=int, default=8, help="cores of the judge's trials")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    output, tiny = options.output.absolute(), options.tiny
    results: list[Result] = []
    for setting in options.only:
        for peer in options.peers:
            folder = output / setting.replace(", ", "-").replace(" ", "-") / peer
            found = search(peer, setting, folder, options.deadline, tiny=tiny)
            # The judge's slot is gone before the next peer starts, which then has the whole GPU.
            with Slot(options.cpus) as slot:
                results.append(judged(found, slot, folder, tiny=tiny))
            print(list(report(results))[-1], file=sys.stderr, flush=True)
            (output / "results.json").write_text(json.dumps([asdict(one) for one in results], indent=1))
    print("\n".join(report(results)))


if __name__ == "__main__":
    main()
