"""The trial behind a row: from its record, or rebuilt from the table and checked."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord, skipped
from jobs.spec import TrialSpec
from orchestrator.analysis.dataset import Dataset, dataset_of_records, load_dataset
from orchestrator.analysis.recommendation.offers import candidates
from orchestrator.export import NotExportableError, export_candidate
from orchestrator.export.source_trial import source_trial
from orchestrator.planning.config import SweepConfig
from orchestrator.planning.plan import plan
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import PRESENT_TRIAL_ID
from tests.support.config_files import config_of
from tests.support.records import write_run

CONFIG = """
model: {task: causal-lm, architecture: llama, config: {hidden_size: 64}}
training_arguments: {weight_decay: 0.1, optim: adagrad}
axes:
  micro_batch: [1, 2]
  precision: [bf16, bf16_weights]
  adapter: [none, lora_r8]
  max_grad_norm: [0.0, 1.0]
  offload: [none, zero2]
measure: {steps: 7, repeats: 2}
cpu_fallback: {steps: 3}
resources: {nvme_path: /mnt/disk}
"""


@pytest.fixture
def config(tmp_path: Path) -> SweepConfig:
    """Axes of techniques and of a plain argument over the user's own arguments."""
    return config_of(tmp_path, CONFIG)


def _measured(spec: TrialSpec, *, gpu: bool = True) -> TrialRecord:
    environment = {"gpu_model": "NVIDIA H200"} if gpu else {"cpu_model": "synthetic"}
    figures = {
        "peak_allocated_bytes": 10**9,
        "device_peak_bytes": 2 * 10**9 if gpu else None,
        "samples_per_second": 10.0,
    }
    return TrialRecord(spec=spec, outcome=Outcome.OK, measurements=figures, environment=environment)


def _dataset(records: Sequence[TrialRecord], config: dict[str, Any]) -> Dataset:
    return dataset_of_records(records, RunMetadata(name="sweep", config=config))


@pytest.mark.parametrize("gpu", [True, False])
def test_source_trial_of_a_table_rebuilds_every_row(config, gpu):
    first, *others = plan(config, has_gpu=gpu).trials
    records = [_measured(first, gpu=gpu)]
    records += [skipped(spec, "time_budget", "no time left") for spec in others]
    # As the config is read back from a table.
    dataset = _dataset(records, json.loads(json.dumps(config.to_json())))
    for row, spec in zip(dataset.rows, (first, *others), strict=True):
        found, is_checked = source_trial(dataset, row)
        assert is_checked
        assert found.settings == spec.settings
        assert found.measure.steps == (7 if gpu else 3)
        assert found.needs.gpus == int(gpu)


def test_source_trial_of_a_table_has_the_gpus_that_shared_it(tmp_path):
    axes = "axes: {micro_batch: [4], sharding: [none, ddp, zero3]}\nresources: {gpus_per_trial: 2}"
    config = config_of(tmp_path, f"model: {{task: causal-lm, architecture: llama}}\n{axes}")
    specs = plan(config).trials
    dataset = _dataset(list(map(_measured, specs)), json.loads(json.dumps(config.to_json())))
    found = [source_trial(dataset, row) for row in dataset.rows]
    assert [spec.world_size for spec, _ in found] == [1, 2, 2]
    assert found == [(spec, True) for spec in specs]


def test_source_trial_of_a_sweep_of_several_gpu_models_is_checked(config):
    spec = dataclasses.replace(plan(config).trials[0], gpu_model="NVIDIA H200")
    dataset = _dataset([_measured(spec)], config.to_json())
    found, is_checked = source_trial(dataset, dataset.rows[0])
    assert is_checked
    assert found.trial_id == spec.trial_id


def test_source_trial_accepts_the_present_id_beside_an_earlier_one(config):
    spec = plan(config).trials[0]
    dataset = _dataset([_measured(spec)], config.to_json())
    row = {**dataset.rows[0], "trial_id": "earlier", PRESENT_TRIAL_ID.name: spec.trial_id}
    assert source_trial(dataset, row)[1]


def test_source_trial_of_another_config_is_not_checked(config, tmp_path):
    spec = plan(config).trials[0]
    changed = {**config.to_json(), "training_arguments": {"weight_decay": 0.2}}
    dataset = _dataset([_measured(spec)], changed)
    assert not source_trial(dataset, dataset.rows[0])[1]
    (candidate,) = candidates(dataset.main.configurations)
    export_candidate(dataset, candidate, tmp_path / "train")
    readme = (tmp_path / "train" / "README.md").read_text()
    assert f"this version would run trial {spec.trial_id} as" in readme


@pytest.mark.parametrize("missing", ["model", "measure", "cpu_fallback", "data"])
def test_source_trial_without_its_config_is_not_exportable(config, missing):
    incomplete = {key: value for key, value in config.to_json().items() if key != missing}
    dataset = _dataset([_measured(plan(config).trials[0])], incomplete)
    with pytest.raises(NotExportableError, match="does not say how it ran"):
        source_trial(dataset, dataset.rows[0])


def test_source_trial_of_a_technique_that_is_gone_is_not_exportable(config):
    dataset = _dataset([_measured(plan(config).trials[0])], config.to_json())
    row = {**dataset.rows[0], "adapter": "lora_of_old"}
    with pytest.raises(NotExportableError, match="lora_of_old"):
        source_trial(dataset, row)


def test_source_trial_with_records_is_the_recorded_spec(config, tmp_path):
    spec = plan(config).trials[0]
    folder = write_run(tmp_path / "run", [_measured(spec)])
    dataset = load_dataset(folder)
    assert source_trial(dataset, dataset.rows[0]) == (spec, True)


def test_export_candidate_that_was_not_measured_has_its_own_batch(config, tmp_path):
    spec = next(trial for trial in plan(config).trials if trial.micro_batch == 2)
    record = _measured(spec)
    figures = {**record.measurements, "parameters_trainable": 10, "parameter_dtypes": "float32"}
    dataset = _dataset([dataclasses.replace(record, measurements=figures)], config.to_json())
    (inferred,) = candidates(dataset.main.configurations, effective_batch=8)
    # 3 × 5, of which a micro-batch of 2 was measured.
    batch = {"micro_batch": 3, "accumulation": 5, "effective_batch": 15}
    row = {**inferred.configuration.row, **batch}
    configuration = dataclasses.replace(inferred.configuration, row=row)
    between = dataclasses.replace(inferred, configuration=configuration)
    for candidate, sizes in ((inferred, (2, 4)), (between, (3, 5))):
        folder = tmp_path / str(sizes[0])
        export_candidate(dataset, candidate, folder)
        settings = json.loads((folder / "training_arguments.json").read_text())
        assert (
            settings["per_device_train_batch_size"],
            settings["gradient_accumulation_steps"],
        ) == sizes
        assert "measured_peak_allocated_bytes" not in (folder / "train.py").read_text()
        assert f"trial {spec.trial_id}" in (folder / "README.md").read_text().splitlines()[0]
