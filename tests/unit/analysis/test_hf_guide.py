"""The Hugging Face guides' published table."""

from __future__ import annotations

from orchestrator.analysis.dataset import dataset_of_records
from orchestrator.analysis.hf_guide import guide, guide_rows, published
from orchestrator.storage.run_metadata import RunMetadata
from tests.support.records import GUIDE_CONFIG, make_guide


def test_published_figures_need_every_choice_to_be_the_guides() -> None:
    lean = {"micro_batch": 1, "accumulation": 4, "activations": "checkpoint", "precision": "fp16"}
    row = published({**lean, "optimizer": "adafactor"})
    assert row is not None
    assert (row.seconds, row.samples_per_second, row.memory_mib) == (56.54, 9.06, 4847)
    assert published({"micro_batch": 4, "precision": "bf16"}) is None
    assert published({"micro_batch": 4, "attention": "eager"}) is None
    assert published({"micro_batch": 4, "learning_rate": 1e-3}) is None


def test_published_figures_are_found_for_optimizers_that_stand_for_another() -> None:
    assert published({"micro_batch": 4, "optimizer": "adamw_torch"}) == guide().rows[0]
    assert [row for row in guide().rows if published(row.choices) is not row] == []


def test_guide_rows_are_in_the_guides_order_with_their_figures() -> None:
    dataset = dataset_of_records(make_guide(), RunMetadata(config=GUIDE_CONFIG))
    assert dataset.main is not None
    rows = guide_rows(dataset.run, dataset.main.configurations)
    places = [guide().rows.index(row.published) for row in rows if row.published]
    assert set(places) == set(range(len(guide().rows)))
    assert places == sorted(places)
