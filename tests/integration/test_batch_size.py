"""The batch-size verb through a real Ray and a real Trainer, on a tiny model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome
from orchestrator import batch_size
from orchestrator.running.nodes import Cluster, Node
from orchestrator.storage.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_session")]

CONFIG = """\
model:
  task: sequence-classification
  architecture: bert
  config:
    hidden_size: 32
    num_hidden_layers: 2
    num_attention_heads: 2
    intermediate_size: 64
    vocab_size: 128
    max_position_embeddings: 16
data:
  synthetic: {sequence_length: 16, samples: 16}
axes:
  micro_batch: [1, 2]
  optimizer: [adamw_torch_fused, sgd]
measure: {deadline: 60s}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sweep."""
    path = tmp_path_factory.mktemp("batch-size") / "tiny.yaml"
    path.write_text(CONFIG)
    return path


def tuned(
    config: Path, folder: Path, *options: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    """The verb's exit status and the JSON it printed."""
    arguments = [
        str(config),
        "--output",
        str(folder),
        "--max-micro-batch",
        "12",
        "--json",
        *options,
    ]
    status = batch_size.main(arguments)
    return status, json.loads(capsys.readouterr().out)


def test_every_answer_is_a_trial_and_a_second_run_repeats_none(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = tuned(config, tmp_path, "--effective-batch", "24", capsys=capsys)
    assert status == 0
    (hardware,) = document["hardware"]
    (answer,) = hardware["answers"]
    records = RunFolder(tmp_path).records()
    assert {size["trial_id"] for size in answer["sizes"]} == set(records)
    assert {record.outcome for record in records.values()} == {Outcome.OK}
    assert len({record.measurements["slot_pid"] for record in records.values()}) == 1
    assert answer["largest"]["micro_batch"] == 12
    assert answer["accumulated"]["micro_batch"] * answer["accumulated"]["accumulation"] == 24
    assert (
        answer["fastest"]["memory_bytes"]
        == records[answer["fastest"]["trial_id"]].measurements["peak_allocated_bytes"]
    )
    assert json.loads((tmp_path / "batch_size.json").read_text()) == document
    assert (tmp_path / "trials.parquet").stat().st_size > 0

    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    again = tuned(config, tmp_path, "--effective-batch", "24", "--resume", capsys=capsys)
    assert again[1]["hardware"] == document["hardware"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()} == written


def test_a_set_that_cannot_run_says_why(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = tuned(
        config, tmp_path, "--set", "attention=flash_attention_2", capsys=capsys
    )
    assert status == 1
    (answer,) = document["hardware"][0]["answers"]
    assert answer["largest"] is None
    assert answer["unfinished"].startswith("unsupported: ")


def test_without_time_there_is_no_answer(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = tuned(config, tmp_path, "--time-budget", "0.001s", capsys=capsys)
    assert status == 1
    (answer,) = document["hardware"][0]["answers"]
    assert (answer["sizes"], answer["unfinished"]) == ([], "it was ended before its last trial")


def test_each_kind_of_hardware_is_tuned_on_its_own(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def by_hardware(cluster: Cluster) -> tuple[Cluster, ...]:
        if cluster.pinned:
            return (cluster,)
        (node,) = cluster.nodes
        asked.append(node.node_id)
        return tuple(
            Cluster(nodes=(renamed(node, name),), pinned=True) for name in ("one model", "another")
        )

    monkeypatch.setattr(Cluster, "by_hardware", by_hardware)
    status, document = tuned(config, tmp_path, "--max-micro-batch", "1", capsys=capsys)
    assert status == 0
    assert asked
    assert [one["hardware"] for one in document["hardware"]] == ["one model", "another"]
    for one in document["hardware"]:
        (record,) = RunFolder(Path(one["folder"])).records().values()
        assert record.trial_id == one["answers"][0]["largest"]["trial_id"]


def renamed(node: Node, name: str) -> Node:
    """The node as if it had another processor."""
    return dataclasses.replace(node, environment={**node.environment, "cpu_model": name})
