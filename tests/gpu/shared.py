"""What the tests on a GPU share: models, trials of one configuration, scripts beside them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.node.processes import process_variables
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.export import export
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.support.commands import ROOT, python

TIMEOUT = 600.0
"""Seconds that a trial or a script may take."""
BERT_LARGE: Mapping[str, Any] = {
    "task": "sequence-classification",
    "architecture": "bert",
    "config": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
DECODER: Mapping[str, Any] = {
    "task": "causal-lm",
    "architecture": "llama",
    "config": {
        "vocab_size": 32000,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    },
}
UUIDS = nvml.visible_uuids()
"""The GPUs, found through NVML: a CUDA context of this process would count in measurements."""


def gpu_marks(*, timeout_seconds: int = 900, gpus: int = 1) -> list[pytest.MarkDecorator]:
    """The ``pytestmark`` of a file whose tests need this many GPUs."""
    return [
        pytest.mark.gpu,
        pytest.mark.timeout(timeout_seconds),
        pytest.mark.skipif(len(UUIDS) < gpus, reason=f"needs CUDA devices: {gpus}"),
    ]


def planned(
    folder: Path,
    model: Mapping[str, Any],
    choices: str | Mapping[str, Any],
    data: Mapping[str, Any] | tuple[int, int] = (512, 512),
    **measure: Any,
) -> TrialSpec:
    """One trial, as a sweep would plan it.

    ``choices`` may be YAML. ``data`` may be the length and the number of random sequences. As many
    steps run as ``measure`` says.
    """
    if isinstance(choices, str):
        choices = yaml.safe_load(choices)
    if isinstance(data, tuple):
        data = {"synthetic": {"sequence_length": data[0], "samples": data[1]}}
    measure = {"warmup_steps": 2, "steps": 4, "relative_error": 0, **measure}
    config = {"model": {**model}, "data": data, "trials": [choices], "measure": measure}
    path = folder / "sweep.yaml"
    path.write_text(json.dumps(config))
    (spec,) = plan(load_config(path)).trials
    return spec


def measured(slot: Slot, spec: TrialSpec) -> TrialRecord:
    """The record of a trial, which must end ok."""
    record = slot.run(spec, TIMEOUT)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    return record


def run_here(*command: str, cwd: Path = ROOT, **variables: str) -> str:
    """What a Python command prints. Fails with its output if it fails."""
    done = python(*command, cwd=cwd, env={**os.environ, **variables}, timeout=TIMEOUT)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def bare_figures(script: str, *arguments: str) -> Mapping[str, Any]:
    """The figures that a module of this folder prints on its last line, as JSON."""
    output = run_here("-m", f"tests.gpu.{script}", *arguments)
    figures: Mapping[str, Any] = json.loads(output.splitlines()[-1])
    print(figures)
    return figures


def peak_of_code(code: str, *arguments: str) -> int:
    """The peak in bytes that a script of libraries alone prints on its last line."""
    output = run_here("-c", code, *arguments, **process_variables(4), CI="1")
    return int(json.loads(output.splitlines()[-1]))


def exported(spec: TrialSpec, folder: Path, *options: str, steps: int, **known: Any) -> str:
    """What the exported script of a trial prints when it trains on what the trial trained on."""
    export(spec, folder, label=folder.name, **known)
    options = ("--synthetic", "--eval_strategy", "no", *options)
    steps_option = ("--max_steps", str(steps))
    return run_here("train.py", *steps_option, *options, cwd=folder, **variables_of_a_script())


def variables_of_a_script(*folders: str) -> dict[str, str]:
    """The environment of an exported script: the libraries of this process without the project,
    and the modules of ``folders`` before them."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [*folders, *(path for path in paths if Path(path) != ROOT)]
    return {**process_variables(os.cpu_count() or 1), "PYTHONPATH": os.pathsep.join(own)}
