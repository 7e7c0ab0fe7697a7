"""Exported trainings on rows of unequal length: the memory and speed that a few steps promised.

``pytest -s tests/gpu/test_epochs.py`` prints a row for each case, and ``TUNED="RUN RUN"`` adds one
for each answer of these runs of ``tune``, whose trial is measured again. The peak of the whole GPU
is within 2 % of the promise.
The speed is within the interval that holds 95 of 100 other trials.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.node.environment import describe
from jobs.spec import TrialSpec
from orchestrator.analysis.dataset import load_dataset
from orchestrator.analysis.repeatability import speed_error
from orchestrator.export import export
from orchestrator.export.source_trial import source_trial
from orchestrator.reporting.markdown import line
from orchestrator.reporting.verbs.tune_result import read
from orchestrator.running.background_prediction import EpochForecasts
from orchestrator.storage.tables.rows import Row, row_of
from orchestrator.units import GIB
from tests.gpu.shared import (
    BERT_LARGE,
    DECODER,
    gpu_marks,
    measured,
    planned,
    variables_of_a_script,
)

STEPS = int(os.environ.get("STEPS", "500"))
LOGGED = 20
"""The time counts from this step on, because the first ones load what all others use."""
LORA = "adapter: {lora: {r: 16, target_modules: all-linear}}, base: bnb_4bit"
MODELS: Mapping[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]] = {
    "encoder": (BERT_LARGE, "precision: bf16, micro_batch: 16", {"mean": 160, "sigma": 0.6}),
    "decoder": (DECODER, "precision: bf16, micro_batch: 4", {"mean": 400, "sigma": 0.6}),
    "checkpointed": (
        DECODER,
        "precision: bf16, micro_batch: 8, activations: checkpoint",
        {"mean": 400, "sigma": 0.6},
    ),
    "qlora": (DECODER, f"precision: bf16, micro_batch: 4, {LORA}", {"mean": 400, "sigma": 0.6}),
}
"""Name -> a model, its choices, and the lengths of its texts in tokens."""
CASES = [
    ("encoder", "pad"),
    ("encoder", "group_by_length"),
    ("decoder", "pad"),
    ("decoder", "group_by_length"),
    ("decoder", "packed_whole_rows"),
    ("checkpointed", "pad"),
    ("qlora", "pad"),
    ("qlora", "packed_whole_rows"),
]
HEADINGS = ("", "trial, GiB", "said", "trained", "%", "said, samples/s", "trained", "%", "±%")
MEASURED_AT_EXIT = """
import atexit, sys
def peak():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        free, whole = torch.cuda.mem_get_info()
        others = whole - free - torch.cuda.memory_reserved()
        print("PEAK", others + torch.cuda.max_memory_reserved(), flush=True)
atexit.register(peak)
"""
"""A sitecustomize.py: the whole GPU's bytes at the peak of what the allocator held."""

pytestmark = gpu_marks(timeout_seconds=900)


@pytest.fixture(scope="module")
def specs(tmp_path_factory) -> Mapping[tuple[str, str], TrialSpec]:
    folder = tmp_path_factory.mktemp("epochs")
    trials = {}
    for model, batching in CASES:
        architecture, choices, lengths = MODELS[model]
        data = {"sequence_length": 1024, "samples": 4 * STEPS, "lengths": lengths}
        if model == "encoder":
            data |= {"sequence_length": 512, "samples": 16 * STEPS}
        if "packed" in batching:
            data["samples"] = 10 * STEPS
        chosen = f"{{{choices}, batching: {batching}}}"
        trials[model, batching] = planned(
            folder, architecture, chosen, {"synthetic": data}, steps=5
        )
    return trials


@pytest.fixture(scope="module", autouse=True)
def _headings() -> None:
    print("", line(HEADINGS), line(["---"] + ["---:"] * (len(HEADINGS) - 1)), sep="\n")


@pytest.fixture(scope="module")
def forecasts(specs) -> Iterator[EpochForecasts]:
    with EpochForecasts(describe()["gpu_model"]) as running:
        for spec in specs.values():
            running.started(spec)
        yield running


def trained(folder: Path) -> tuple[int, float]:
    """The whole GPU's peak bytes and the mean seconds of a step of ``train.py``."""
    (folder / "at_exit").mkdir()
    (folder / "at_exit" / "sitecustomize.py").write_text(MEASURED_AT_EXIT)
    options = ("--synthetic", "--eval_strategy", "no", "--save_strategy", "no")
    steps = ("--max_steps", str(STEPS), "--logging_steps", str(LOGGED))
    logged, peak = [], 0
    with subprocess.Popen(
        (sys.executable, "-u", "train.py", *options, *steps),
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables_of_a_script(str(folder / "at_exit"))},
    ) as process:
        for words in process.stdout or ():
            if "'learning_rate'" in words:
                logged.append(time.perf_counter())
            if words.startswith("PEAK"):
                peak = int(words.split()[1])
    assert process.returncode == 0
    return peak, (logged[-1] - logged[0]) / (STEPS - LOGGED)


def misses(title: str, row: Row, spec: TrialSpec, folder: Path) -> list[str]:
    """Trains the export of a trial and prints its line. What the trial said wrongly, in words."""
    # Rows of equal length add nothing to a trial's peak.
    # What it adds to that of images or compiled code is not known.
    said = row["device_peak_bytes"] + (row.get("epoch_growth_bytes") or 0)
    said_speed = row["samples_per_second"]
    interval = speed_error([row]).of_another_trial().half_width95
    export(spec, folder, label=title)
    peak, seconds = trained(folder)
    # A packed row has several samples. A sample of DPO has two rows.
    tokens_of_a_sample = row["real_tokens_per_second"] / said_speed
    samples_of_a_row = max(1, (row.get("mean_row_tokens") or 0) / tokens_of_a_sample)
    speed = row["effective_batch"] * samples_of_a_row / seconds
    cells = [title, *(f"{own / GIB:.2f}" for own in (row["device_peak_bytes"], said, peak))]
    cells += [f"{100 * (said / peak - 1):+.1f}", f"{said_speed:.2f}", f"{speed:.2f}"]
    # At once, so that a run that is cut has what was measured.
    cells += [f"{100 * (said_speed / speed - 1):+.1f}", f"{100 * interval:.1f}"]
    print(line(cells), flush=True)
    found = []
    if said != pytest.approx(peak, rel=0.02):
        found.append(f"{title}: memory")
    if abs(math.log(speed / said_speed)) > max(interval, 0.05):
        found.append(f"{title}: speed")
    return found


@pytest.mark.parametrize(("model", "batching"), CASES)
def test_an_epoch_takes_the_promised_memory_and_speed(
    model, batching, specs, forecasts, slot, tmp_path
):
    spec = specs[model, batching]
    row = row_of(forecasts.completed(measured(slot, spec)), {})
    assert not misses(f"{model}, {batching}", row, spec, tmp_path / "train")


def _answers() -> Iterator[tuple[str, str]]:
    """The runs of ``tune`` that are asked for, and the trials that they recommend."""
    for run in os.environ.get("TUNED", "").split():
        for own in read(load_dataset(Path(run))).results:
            if own.best:
                yield run, own.best.trial_id


@pytest.mark.parametrize(("run", "trial_id"), dict.fromkeys(_answers()))
def test_the_answers_of_tune_train_as_promised(run, trial_id, slot, tmp_path):
    dataset = load_dataset(Path(run))
    (row,) = (own for own in dataset.rows if own["trial_id"] == trial_id)
    spec, _ = source_trial(dataset, row)
    # Measured anew, because the run may be of another host.
    with EpochForecasts(describe()["gpu_model"]) as forecasts:
        forecasts.started(spec)
        row = row_of(forecasts.completed(measured(slot, spec)), {})
    assert not misses(f"{Path(run).parent.name}, {trial_id}", row, spec, tmp_path / "train")
