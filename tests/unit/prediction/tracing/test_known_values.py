"""Images with texts: what a step computes follows from where the images are, and how large."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch

from jobs.spec import DataSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.known_values import known_results, number_of
from tests.conftest import ROOT, build_tiny_spec
from tests.support.vision_models import CONFIGS, tiny_images, tiny_vision_model

GPU = load_gpu("h200")


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_of_vision_models_is_predicted(family):
    data = DataSpec(synthetic=tiny_images(family, images=2, sequence_length=64))
    spec = replace(build_tiny_spec(), model=tiny_vision_model(family), data=data)
    (own,) = predict([spec], GPU)
    assert own.unknown == own.refused == ""
    assert own.allocated is not None


def test_peaks_of_images_with_texts_are_what_an_h200_measured():
    config = load_config(ROOT / "tests/data/techniques/peers/vision_language.yaml")
    table = pq.read_table(ROOT / "tests/data/peers_h200/vision_language/trials.parquet")
    measured = {own["trial_id"]: own for own in table.to_pylist() if own["outcome"] == "ok"}
    specs = [own for own in plan(config, has_gpu=True).trials if own.trial_id in measured]
    assert len(specs) == len(measured) == 2
    for spec, own in zip(specs, predict(specs, GPU), strict=True):
        row = measured[spec.trial_id]
        assert own.allocated.bytes == pytest.approx(row["peak_allocated_bytes"], rel=1e-4)
        assert own.device.bytes == pytest.approx(row["device_peak_bytes"], rel=1e-3)


def test_values_follow_operators_in_place_and_not_what_has_none():
    spec = replace(
        build_tiny_spec(),
        model=tiny_vision_model("qwen2_vl"),
        data=DataSpec(synthetic=tiny_images("qwen2_vl")),
    )
    step = FakeStep(spec, GPU)
    with step.traced():
        counted = torch.arange(6)
        row = counted[1:4]
        row += 10
        assert (counted[2].item(), counted[5].item()) == (12, 5)
        assert counted[counted > 10].shape == (3,)
        assert torch.tensor([counted[0], counted[3]]).shape == (2,)
        assert number_of(torch.empty(())) is None
        # What is not known in place makes its target unknown, too.
        row.copy_(torch.empty(3, dtype=torch.int64))
        assert known_results(torch.ops.aten.neg.default, (row,), {}) is None
