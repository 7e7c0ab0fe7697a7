"""The commands that find a batch size: ours and its peers', and how each gives its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bare_training import ROOT

OURS = "ours"
PEERS = (OURS, "accelerate", "trainer", "lightning")
"""All but ours are in ``peer.py``."""
CONFIG, SPEC = "setting.yaml", "spec.json"
"""Files in a peer's folder: the setting as a sweep, and as a trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a peer picked."""

    micro_batch: int
    search_seconds: float
    """Without imports; of ours the slot seconds of its trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a command printed until it ended or its time was over."""

    text: str
    errors: str
    in_time: bool


def command_of(peer: str, folder: Path, largest: int) -> list[str]:
    """How to run a peer in its folder, with the largest micro-batch to try."""
    if peer != OURS:
        script = str(Path(__file__).with_name("peer.py"))
        return [sys.executable, script, peer, str(folder / SPEC), str(largest)]
    verb = [sys.executable, "-m", "orchestrator.batch_size", str(folder / CONFIG)]
    options = ["--json", "--fresh", "--output", str(folder / "ours")]
    return [*verb, *options, "--max-micro-batch", str(largest)]


def answer_of(peer: str, text: str) -> Answer:
    """The answer in what a peer printed. Raises ValueError or LookupError."""
    if peer != OURS:
        last = json.loads(text.splitlines()[-1])
        return Answer(micro_batch=int(last["micro_batch"]), search_seconds=float(last["seconds"]))
    answer = json.loads(text[text.index("{") :])["hardware"][0]["answers"][0]
    if answer["fastest"] is None:
        raise ValueError("no micro-batch fits")
    return Answer(
        micro_batch=int(answer["fastest"]["micro_batch"]),
        search_seconds=float(answer["slot_seconds"]),
    )


def run(command: Sequence[str], folder: Path, timeout_seconds: float) -> Output:
    """Run a command in its folder. Nothing of it survives its end or the timeout."""
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
    return Output(text=text, errors=errors, in_time=in_time)


def last_error(errors: str) -> str:
    """The last error in the peer's own words."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line.partition(":")[0]]
    return (raised or lines or ["no output"])[-1][:200]
