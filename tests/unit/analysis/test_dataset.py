"""A run as one dataset: its labels, its losses, and the layers of its memory."""

from orchestrator.analysis.dataset import dataset_of_records, load_dataset
from orchestrator.analysis.profiles import memory_layers
from orchestrator.storage.run_metadata import RunMetadata
from tests.support.records import make_record, write_run


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
