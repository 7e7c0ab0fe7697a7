"""The commands that find a batch size: ours and its peers', and how each gives its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bare_training import ROOT

CONFIG, SPEC, DEEPSPEED = "setting.yaml", "spec.json", "deepspeed.json"
"""Files in a peer's folder: the setting as a sweep, as a trial, and DeepSpeed's configuration."""
SCRIPT = str(Path(__file__).with_name("peer.py"))

DEEPSPEED_COMMAND = """\
#!/bin/sh
errors=$(mktemp)
{python} -m deepspeed.launcher.runner "$@" 2> "$errors" && exit 0
status=$?
cat "$errors" >&2
exit $status
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a peer picked."""

    micro_batch: int
    search_seconds: float | None
    """Without imports, where the peer says so; of ours the slot seconds of its trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a command printed until it ended or its time was over."""

    text: str
    errors: str
    in_time: bool


@dataclass(frozen=True, slots=True)
class Peer:
    """How to run a peer, and how to read its answer."""

    command: Callable[[Path, int], list[str]]
    """From its folder and the largest micro-batch to try."""
    answer: Callable[[str, Path], Answer]
    """From what it printed and its folder. Raises ValueError, LookupError or StopIteration."""


def _our_command(folder: Path, largest: int) -> list[str]:
    options = ["--json", "--fresh", "--output", str(folder / "ours")]
    options += ["--max-micro-batch", str(largest)]
    return [sys.executable, "-m", "orchestrator.batch_size", str(folder / CONFIG), *options]


def _our_answer(text: str, folder: Path) -> Answer:
    answer = json.loads(text[text.index("{") :])["hardware"][0]["answers"][0]
    if answer["fastest"] is None:
        raise ValueError("no micro-batch fits")
    return Answer(
        micro_batch=int(answer["fastest"]["micro_batch"]),
        search_seconds=float(answer["slot_seconds"]),
    )


def _deepspeed_command(folder: Path, largest: int) -> list[str]:
    arguments = {
        "train_micro_batch_size_per_gpu": "--micro-batch",
        "gradient_accumulation_steps": "--accumulation",
    }
    autotuning = {
        "enabled": True,
        "fast": True,
        "max_train_micro_batch_size_per_gpu": largest,
        "arg_mappings": arguments,
    }
    settings = {**dict.fromkeys(arguments, "auto"), "bf16": {"enabled": True}}
    (folder / DEEPSPEED).write_text(json.dumps({**settings, "autotuning": autotuning}))
    # Else its experiments use a host's GPUs in turn, whatever --num_gpus and CUDA_VISIBLE_DEVICES
    # say.
    one_gpu = ["--include", "localhost:0"]
    launch = [sys.executable, "-m", "deepspeed.launcher.runner", "--autotuning", "tune", *one_gpu]
    training = [SCRIPT, "deepspeed_training", str(folder / SPEC), str(largest)]
    training += ["--micro-batch", "8", "--accumulation", "1", "--deepspeed", DEEPSPEED]
    return [*launch, *training]


def _deepspeed_answer(text: str, folder: Path) -> Answer:
    best = json.loads(next(folder.glob("**/ds_config_optimal.json")).read_text())
    return Answer(micro_batch=int(best["train_micro_batch_size_per_gpu"]), search_seconds=None)


def _in_script(name: str) -> Peer:
    """A peer in ``peer.py``, whose last line is its answer."""

    def command(folder: Path, largest: int) -> list[str]:
        return [sys.executable, SCRIPT, name, str(folder / SPEC), str(largest)]

    def answer(text: str, folder: Path) -> Answer:
        last = json.loads(text.splitlines()[-1])
        return Answer(micro_batch=int(last["micro_batch"]), search_seconds=float(last["seconds"]))

    return Peer(command, answer)


PEERS: Mapping[str, Peer] = {
    "ours": Peer(_our_command, _our_answer),
    "accelerate": _in_script("accelerate"),
    "trainer": _in_script("trainer"),
    "lightning": _in_script("lightning"),
    "deepspeed": Peer(_deepspeed_command, _deepspeed_answer),
}


def run(command: Sequence[str], folder: Path, timeout_seconds: float) -> Output:
    """Run a command in its folder. Nothing of it survives its end or the timeout."""
    path = [str(write_stand_ins(folder)), os.environ.get("PATH", "")]
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONPATH": os.pathsep.join(modules), "PATH": os.pathsep.join(path)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **variables},
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
    return Output(text=text, errors=errors, in_time=in_time)


def write_stand_ins(folder: Path) -> Path:
    """The commands that DeepSpeed's autotuner calls by name; returns their folder.

    ``deepspeed`` may be missing from the path. The autotuner also takes the word "error" in any
    line of an experiment for a failure, so the stand-in prints errors of failed experiments only.
    ``pdsh`` ends what is left on other nodes; there are none.
    """
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    texts = {
        "deepspeed": DEEPSPEED_COMMAND.format(python=sys.executable),
        "pdsh": "#!/bin/sh\nexit 0\n",
    }
    for name, text in texts.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return commands


def last_error(errors: str, folder: Path) -> str:
    """The last error in the peer's own words. Experiments of DeepSpeed write theirs to files."""
    logs = sorted(folder.glob("autotuning_results/*/stderr.log"))
    texts = [errors, *(path.read_text() for path in logs)]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line.partition(":")[0]]
    return (raised or lines or ["no output"])[-1][:200]
