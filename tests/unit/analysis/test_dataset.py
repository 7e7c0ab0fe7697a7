"""A run as one dataset: environments apart, follow-ups apart, one label."""

from jobs.record import Outcome
from jobs.spec import Purpose, TrainingRecipe
from orchestrator.analysis.dataset import dataset_of_records, load_dataset
from orchestrator.analysis.profiles import memory_layers
from orchestrator.storage.run_metadata import RunMetadata
from tests.support.records import H200, follow_up_of, make_record, write_run

OTHER = {**H200, "gpu_model": "NVIDIA A100"}


def test_dataset_environments_are_apart_and_the_largest_comes_first():
    records = [make_record(environment=OTHER)]
    records += [make_record(micro_batch=2**n) for n in range(3)]
    dataset = dataset_of_records(records, RunMetadata())
    assert [results.hardware for results in dataset.environments] == ["NVIDIA H200", "NVIDIA A100"]
    assert [len(results.configurations) for results in dataset.environments] == [3, 1]
    assert dataset.main is dataset.environments[0]


def test_dataset_follow_ups_are_no_configurations():
    record = make_record()
    check = follow_up_of(record, Purpose.CAP_CHECK)
    dataset = dataset_of_records([record, check], RunMetadata())
    assert len(dataset.rows) == len(dataset.follow_ups) == 1
    assert len(dataset.main.configurations) == 1
    assert len(dataset.main.follow_ups) == 1


def test_dataset_ranks_the_nearest_recipe_that_ended_ok():
    failed = make_record(outcome=Outcome.FAILED, optimizer="adamw_torch_fused")
    sgd = make_record(optimizer="sgd", recipe={"optimizer": "sgd"})
    dataset = dataset_of_records([failed, sgd], RunMetadata())
    assert dataset.main.recipe == TrainingRecipe.of({"optimizer": "sgd"})
    assert not dataset.main.is_baseline_recipe
    assert dataset.main.fronts.keys() == {dataset.main.recipe}


def test_dataset_labels_name_the_axes_in_play():
    record = make_record(micro_batch=8, precision="bf16", optimizer="sgd")
    other = make_record(micro_batch=16, precision="bf16", optimizer="sgd")
    by_rows = dataset_of_records([record, other], RunMetadata())
    assert by_rows.label(record.spec.choices) == "batch 8"
    by_config = dataset_of_records([record, other], RunMetadata(axes=("micro_batch", "precision")))
    assert by_config.label(record.spec.choices) == "batch 8 · bf16"
    assert by_config.row_label(by_config.rows[0]) == "batch 8 · bf16"


def test_load_dataset_reads_losses_from_the_folder(tmp_path):
    record = make_record()
    dataset = load_dataset(write_run(tmp_path, [record]))
    assert dataset.losses == {record.trial_id: [3.0, 2.0, 1.0]}
    assert dataset.name == "synthetic"


def test_memory_layers_add_up_to_the_devices_peak():
    row = {
        "model_allocated_bytes": 100,
        "optimizer_state_bytes": 200,
        "peak_allocated_bytes": 450,
        "peak_reserved_bytes": 500,
        "device_peak_bytes": 620,
    }
    layers = memory_layers(row)
    assert list(layers.values()) == [100, 200, 150, 50, 120]
    offloaded = memory_layers({**row, "offload_optimizer_device": "cpu"})
    assert list(offloaded.values()) == [100, 0, 350, 50, 120]
    assert memory_layers({**row, "peak_allocated_bytes": 250}) is None
    assert memory_layers({}) is None
