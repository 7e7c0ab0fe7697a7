"""``batch_size`` beside other batch-size finders: time to an answer, and what the answer is worth.

    python -m tests.benchmarks.batch_size_peers [--output DIR] [--timeout 300] [--budget 1500]

Each peer searches in a fresh process, from 512 down or from 8 up as it does: in all settings,
before the next peer begins. A trial of ours then measures each pick, as one judge. A peer that
fails, or has no turn within the budget, is in the table with the reason. ``--tiny`` is for machines
without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.isolation import prewarm
from jobs.isolation.slot import Slot
from jobs.record import Outcome
from jobs.spec import TrialSpec, to_json
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.benchmarks.bare_training import BERT_LARGE, BERT_TINY, ROOT

CLASSIFIER = {"task": "sequence-classification", "architecture": "bert", "config": BERT_LARGE}
LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
CAUSAL = {"task": "causal-lm", "architecture": "llama", "config": LLAMA}
SETTINGS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "bf16": (CLASSIFIER, {}),
    "bf16, checkpointing": (CLASSIFIER, {"activations": "checkpoint"}),
    "LoRA": (CLASSIFIER, {"adapter": "lora_r8"}),
    "causal LM": (CAUSAL, {}),
}
"""Name -> the model, and the techniques besides bf16 and fused AdamW."""
OURS = "ours"
PEERS = (OURS, "accelerate", "trainer", "lightning")
"""All but ours are in ``peer.py``."""
CONFIG, SPEC = "setting.yaml", "spec.json"
"""Files in a peer's folder: the setting as a sweep, and as a trial."""
SHORTEST_TURN_SECONDS = 20.0
"""No peer imports its libraries and tries a size in less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What came of one peer in one setting."""

    setting: str
    peer: str
    seconds: float = 0.0
    """From the start of its process to its end."""
    search_seconds: float | None = None
    micro_batch: int | None = None
    samples_per_second: float | None = None
    used_bytes: int | None = None
    device_bytes: int | None = None
    failure: str = ""

    @property
    def free_share(self) -> float | None:
        """Share of the GPU's memory that its pick leaves free."""
        if not self.used_bytes or not self.device_bytes:
            return None
        return 1 - self.used_bytes / self.device_bytes


def main() -> None:
    """Run and print."""
    options = command_line().parse_args()
    ends_at = time.monotonic() + options.budget
    options.output.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    # The judge's parent preloads beside the first peer. It takes nothing of the GPU.
    with prewarm.parents(options.cpus), Slot(options.cpus) as judge:
        for name, setting in itertools.product(options.peers, options.only):
            seconds_left = min(options.timeout, ends_at - time.monotonic())
            if seconds_left < SHORTEST_TURN_SECONDS:
                result = Result(setting=setting, peer=name, failure="no turn in the budget")
            else:
                folder = options.output.absolute() / setting.replace(" ", "-") / name
                result = searched(name, setting, folder, seconds_left, tiny=options.tiny)
                result = judged(result, judge, folder, tiny=options.tiny)
            results.append(result)
            print(_line(result), file=sys.stderr, flush=True)
            documents = [dataclasses.asdict(own) for own in results]
            (options.output / "results.json").write_text(json.dumps(documents, indent=1))
    results.sort(key=lambda own: options.only.index(own.setting))
    print("\n".join(report(results)))


def command_line() -> argparse.ArgumentParser:
    """What the benchmark takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.batch_size_peers")
    add = parser.add_argument
    add("--output", type=Path, default=Path("runs/batch_size_peers"))
    add("--timeout", type=float, default=300.0, help="seconds for each peer in each setting")
    add("--budget", type=float, default=math.inf, help="seconds for all of them")
    add("--only", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    add("--peers", nargs="*", choices=PEERS, default=PEERS)
    add("--cpus", type=int, default=8, help="cores of the judge's trials")
    add("--tiny", action="store_true")
    return parser


def searched(
    name: str, setting: str, folder: Path, timeout_seconds: float, *, tiny: bool
) -> Result:
    """One peer's answer, not judged yet."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = write_config(setting, 8, folder / CONFIG, tiny=tiny)
    (folder / SPEC).write_text(json.dumps(to_json(spec)))
    command = command_of(name, folder, 32 if tiny else 512)
    began = time.perf_counter()
    text, errors, in_time = run(command, folder, timeout_seconds)
    result = Result(setting=setting, peer=name, seconds=time.perf_counter() - began)
    if not in_time:
        return dataclasses.replace(result, failure=f"no answer in {timeout_seconds:.0f} s")
    try:
        picked, search_seconds = answer_of(name, text)
    except (ValueError, LookupError):
        return dataclasses.replace(result, failure=last_error(errors))
    return dataclasses.replace(result, micro_batch=picked, search_seconds=search_seconds)


def command_of(peer: str, folder: Path, largest: int) -> list[str]:
    """How to run a peer in its folder, with the largest micro-batch to try."""
    if peer != OURS:
        script = str(Path(__file__).with_name("peer.py"))
        return [sys.executable, script, peer, str(folder / SPEC), str(largest)]
    verb = [sys.executable, "-m", "orchestrator.batch_size", str(folder / CONFIG)]
    options = ["--json", "--fresh", "--output", str(folder / "ours")]
    return [*verb, *options, "--max-micro-batch", str(largest)]


def answer_of(peer: str, text: str) -> tuple[int, float]:
    """The micro-batch in what a peer printed, and its seconds without imports.

    Those of ours are the slot seconds of its trials. Raises ValueError or LookupError.
    """
    if peer != OURS:
        last = json.loads(text.splitlines()[-1])
        return int(last["micro_batch"]), float(last["seconds"])
    answer = json.loads(text[text.index("{") :])["hardware"][0]["answers"][0]
    if answer["fastest"] is None:
        raise ValueError("no micro-batch fits")
    return int(answer["fastest"]["micro_batch"]), float(answer["slot_seconds"])


def run(command: Sequence[str], folder: Path, timeout_seconds: float) -> tuple[str, str, bool]:
    """Run a command in its folder: its output, its errors, and whether it ended in time.

    Nothing of it survives its end or the timeout.
    """
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(modules)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    in_time = True
    try:
        text, errors = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        in_time = False
        os.killpg(process.pid, signal.SIGKILL)
        text, errors = process.communicate()
    (folder / "log.txt").write_text(f"{text}\n{errors}")
    return text, errors, in_time


def last_error(errors: str) -> str:
    """The last error in the peer's own words."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line.partition(":")[0]]
    return (raised or lines or ["no output"])[-1][:200]


def write_config(setting: str, micro_batch: int, path: Path, *, tiny: bool) -> TrialSpec:
    """Write the setting as a sweep of one configuration; returns the trial that it plans."""
    model, techniques = SETTINGS[setting]
    config = {**model["config"], **(BERT_TINY if tiny else {})}
    axes = {
        "precision": "bf16",
        "micro_batch": micro_batch,
        "optimizer": "adamw_torch_fused",
        **techniques,
    }
    document = {
        "model": {**model, "config": config},
        "data": {"synthetic": {"sequence_length": 32 if tiny else 512}},
        "axes": {axis: [value] for axis, value in axes.items()},
    }
    path.write_text(yaml.safe_dump(document))
    return plan(load_config(path), has_gpu=not tiny).trials[0]


def judged(result: Result, judge: Slot, folder: Path, *, tiny: bool) -> Result:
    """The result with what a trial of ours measures at the micro-batch picked."""
    if result.micro_batch is None:
        return result
    spec = write_config(result.setting, result.micro_batch, folder / "judge.yaml", tiny=tiny)
    record = judge.run(spec, spec.measure.timeout_seconds)
    failure = ""
    if record.outcome is not Outcome.OK:
        failure = f"its pick: {record.outcome}: {record.reason}"[:200]
    return dataclasses.replace(
        result,
        samples_per_second=record.measurements.get("samples_per_second"),
        used_bytes=record.measurements.get("device_peak_bytes"),
        device_bytes=record.environment.get("gpu_memory_bytes"),
        failure=failure,
    )


def report(results: Sequence[Result]) -> Iterator[str]:
    """Markdown."""
    yield "| setting | peer | s to answer | of it searching | batch | samples/s | memory free | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    yield from map(_line, results)


def _line(result: Result) -> str:
    cells = (
        result.setting,
        result.peer,
        f"{result.seconds:.1f}",
        _cell(result.search_seconds, ".1f"),
        _cell(result.micro_batch, "d"),
        _cell(result.samples_per_second, ".1f"),
        _cell(result.free_share, ".1%"),
        result.failure.replace("|", " "),
    )
    return f"| {' | '.join(cells)} |"


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


if __name__ == "__main__":
    main()
