"""Our batch_size beside its peers: time to an answer, and the throughput and headroom of what each picks.

    python -m tests.benchmarks.batch_size_peers [--output DIR] [--deadline 300] [--budget 200] [--only SETTING ...]

Each peer searches in a fresh process, from 512 down or from 8 up as it does, in all settings before the next peer does;
what it picks is then measured by one judge, a trial of ours. One that cannot be run is in the table with its error, one
that has no turn within the budget with that. DeepSpeed's autotuner needs the package ``tabulate``, which DeepSpeed does
not install. ``--tiny`` is for machines without a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.isolation import prewarm
from jobs.isolation.slot import Slot
from jobs.spec import TrialSpec, to_json
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
BERT = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
}
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}
CLASSIFIER = {"task": "sequence-classification", "architecture": "bert", "config": BERT}
CAUSAL = {
    "task": "causal-lm",
    "architecture": "llama",
    "config": {**LLAMA, "num_attention_heads": 12},
}
SETTINGS: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "bf16": (CLASSIFIER, {}),
    "bf16, checkpointing": (CLASSIFIER, {"activations": "checkpoint"}),
    "LoRA": (CLASSIFIER, {"adapter": "lora_r8"}),
    "causal LM": (CAUSAL, {}),
}
SHORTEST_TURN_SECONDS = 20.0
"""No peer has imported its libraries and tried a size in less."""
PEERS = ("ours", "accelerate", "trainer", "lightning", "deepspeed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What came of one peer in one setting."""

    setting: str
    peer: str
    slot_seconds: float
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
    axes = {
        "precision": "bf16",
        "micro_batch": micro_batch,
        "optimizer": "adamw_torch_fused",
        **choices,
    }
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
        options = [
            "--json",
            "--fresh",
            "--output",
            str(folder / "ours"),
            "--max-micro-batch",
            str(largest),
        ]
        return [sys.executable, "-m", "orchestrator.batch_size", str(config), *options]
    script = str(ROOT / "tests" / "benchmarks" / "peer.py")
    if peer == "deepspeed":
        mapped = {
            "train_micro_batch_size_per_gpu": "--micro-batch",
            "gradient_accumulation_steps": "--accumulation",
        }
        tuning = {
            "enabled": True,
            "fast": True,
            "max_train_micro_batch_size_per_gpu": largest,
            "arg_mappings": mapped,
        }
        settings = {
            **dict.fromkeys(mapped, "auto"),
            "bf16": {"enabled": True},
            "autotuning": tuning,
        }
        (folder / "deepspeed.json").write_text(json.dumps(settings))
        # Or its experiments take a host's GPUs in turn, whatever --num_gpus and CUDA_VISIBLE_DEVICES say.
        first_gpu = ["--include", "localhost:0"]
        launch = ["-m", "deepspeed.launcher.runner", "--autotuning", "tune", *first_gpu, script]
        training = [
            "deepspeed_training",
            str(spec),
            str(largest),
            "--micro-batch",
            "8",
            "--accumulation",
            "1",
        ]
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
    command = command_of(
        peer, folder / "setting.yaml", folder / "spec.json", folder, 32 if tiny else 512
    )
    began = time.perf_counter()
    picked, seconds, failure = None, None, ""
    output, errors, in_time = run(command, folder, deadline)
    try:
        picked, seconds = answer_of(peer, output, folder)
    except (ValueError, LookupError, TypeError, StopIteration) as error:
        failure = (
            reason_of(peer, errors, folder) or repr(error)
            if in_time
            else f"no answer in {deadline:.0f} s"
        )
    if (
        failure
        and peer == "deepspeed"
        and (ended := list(folder.glob("autotuning_results/*/metrics.json")))
    ):
        failure += f"; {len(ended)} of its experiments had ended"
    return Result(
        setting=setting,
        peer=peer,
        slot_seconds=time.perf_counter() - began,
        search_seconds=seconds,
        micro_batch=picked,
        failure=failure,
    )


def run(command: list[str], folder: Path, deadline: float) -> tuple[str, str, bool]:
    """What a command printed, what it complained of, and whether it ended in time; nothing of it lives on."""
    paths = [str(stand_ins(folder)), os.environ.get("PATH", "")]
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(modules), "PATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    in_time = True
    try:
        output, errors = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        in_time = False
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    (folder / "log.txt").write_text(f"{output}\n{errors}")
    return output, errors, in_time


DEEPSPEED = """\
#!/bin/sh
told=$(mktemp)
{python} -m deepspeed.launcher.runner "$@" 2> "$told" && exit 0
status=$?
cat "$told" >&2
exit $status
"""


def stand_ins(folder: Path) -> Path:
    """What DeepSpeed's autotuner calls by name. ``deepspeed`` need not be on the path where the package is, and the
    autotuner takes the word "error" in any line of an experiment for its failure, the warnings of libraries included:
    one that ended well has nothing to say. ``pdsh`` ends what is left of it on every node; on one node nothing is."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    texts = {"deepspeed": DEEPSPEED.format(python=sys.executable), "pdsh": "#!/bin/sh\nexit 0\n"}
    for name, text in texts.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return place


def reason_of(peer: str, errors: str, folder: Path) -> str:
    """The last thing that went wrong, in its own words; the autotuner's experiments write theirs into files."""
    texts = [errors]
    if peer == "deepspeed":
        texts += [
            path.read_text() for path in sorted(folder.glob("autotuning_results/*/stderr.log"))
        ]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line.partition(":")[0]]
    return (raised or lines or [""])[-1][:200]


def judged(result: Result, slot: Slot, folder: Path, *, tiny: bool) -> Result:
    """The answer with what a trial of ours measures at the micro-batch picked."""
    if result.micro_batch is None:
        return result
    spec = write_config(result.setting, result.micro_batch, folder / "judge.yaml", tiny=tiny)
    record = slot.run(spec, spec.measure.timeout_seconds)
    figures = record.measurements
    return Result(
        **{
            **asdict(result),
            "samples_per_second": figures.get("samples_per_second"),
            "used_bytes": figures.get("device_peak_bytes"),
            "device_bytes": record.environment.get("gpu_memory_bytes"),
            "failure": ""
            if record.outcome == "ok"
            else f"its pick: {record.outcome}: {record.reason}"[:200],
        }
    )


def report(results: list[Result]) -> Iterator[str]:
    """Markdown."""
    yield "| setting | peer | s to answer | of it searching | micro-batch | samples/s | memory free | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for one in results:
        free = (
            1 - one.used_bytes / one.device_bytes if one.used_bytes and one.device_bytes else None
        )
        figures = (
            f"{one.slot_seconds:.1f}",
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
    parser.add_argument(
        "--deadline", type=float, default=300.0, help="seconds for each peer in each setting"
    )
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for all of them")
    parser.add_argument("--only", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--cpus", type=int, default=8, help="cores of the judge's trials")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    output, tiny = options.output.absolute(), options.tiny
    ends = time.monotonic() + options.budget
    results: list[Result] = []
    # The judge's parent preloads beside the first peer; it takes nothing of the GPU, which each peer has whole.
    with prewarm.parents(options.cpus), Slot(options.cpus) as slot:
        for peer, setting in itertools.product(options.peers, options.only):
            folder = output / setting.replace(", ", "-").replace(" ", "-") / peer
            if (left := ends - time.monotonic()) > SHORTEST_TURN_SECONDS:
                found = search(peer, setting, folder, min(options.deadline, left), tiny=tiny)
                results.append(judged(found, slot, folder, tiny=tiny))
            else:
                results.append(
                    Result(
                        setting=setting,
                        peer=peer,
                        slot_seconds=0.0,
                        failure="no turn in the budget",
                    )
                )
            print(list(report(results))[-1], file=sys.stderr, flush=True)
            (output / "results.json").write_text(
                json.dumps([asdict(one) for one in results], indent=1)
            )
    print("\n".join(report(sorted(results, key=lambda one: options.only.index(one.setting)))))


if __name__ == "__main__":
    main()
