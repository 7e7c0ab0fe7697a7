"""Images with texts: what a step computes follows from where the images are, and how large."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch

from jobs.spec import DataSpec
from jobs.trackers.ragged_data import RaggedData
from jobs.trackers.step_times import Steps
from jobs.trial import models
from jobs.trial.assembly import assemble
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.known_values import known_results, number_of
from orchestrator.prediction.tracing.rows.batches import BatchShapes
from tests.conftest import ROOT, build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.living_bytes import LivingBytes, living, plain_trainer, real_peak
from tests.support.vision_models import CONFIGS, tiny_images, tiny_vision_model
from tests.support.vision_processors import picture, qwen_processor, save_llava_processor

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


@pytest.fixture
def unequal_rows(tmp_path):
    """A trial on images of a file, whose texts have 4, 2 and 7 words."""
    for name, sides in (("0", (32, 32)), ("1", (48, 64))):
        picture(*sides).save(tmp_path / f"{name}.png")
    texts = ("a film yes good", "a film", "a good good film yes no no")
    rows = [{"image": f"{own % 2}.png", "text": text} for own, text in enumerate(texts)]
    processor = save_llava_processor(tmp_path / "processor")
    file = file_of(rows, tmp_path, tokenizer=processor, max_length=32)
    arguments = {"remove_unused_columns": False}
    spec = build_tiny_spec({"attention": "eager"}, training_arguments=arguments)
    model = tiny_vision_model("llava", image_token_index=11)
    return replace(spec, model=model, data=DataSpec(file=file))


def test_longest_texts_with_images_stand_for_all(unequal_rows, tmp_path):
    setup, _ = assemble(
        unequal_rows, [Steps(), RaggedData()], lambda _: None, torch.device("cpu"), str(tmp_path)
    )
    real = real_peak(plain_trainer(setup), (2, 0))
    step = FakeStep(unequal_rows, GPU)
    batch = step.batches.worst(2)
    assert batch.tokens() == 16 + 7
    first, _ = step.micro_batches(batch, samples=2, accumulated=False)
    assert living(first, living(step.weights)[0])[0] == pytest.approx(real, abs=8)
    (own,) = predict([unequal_rows], GPU)
    assert own.allocated is not None, own.unknown
    assert own.step is None
    assert any("the longest rows stand for all" in note for note in own.notes)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"])
def test_images_of_several_sizes_take_what_a_real_step_takes(family):
    processor = qwen_processor()
    texts = ["a <|image_pad|> good film", "a <|image_pad|> good <|image_pad|> film film yes no"]
    images = [[picture(32, 64)], [picture(48, 48), picture(96, 32)]]
    batch = dict(processor(text=texts, images=images, padding=True, return_tensors="pt"))
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    token = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    model = tiny_vision_model(family, image_token_id=token, video_token_id=token + 1)
    data = DataSpec(synthetic=tiny_images(family))
    spec = replace(build_tiny_spec({"attention": "eager"}), model=model, data=data)
    step = FakeStep(spec, GPU)
    shapes = BatchShapes(tensors=batch, is_padded=True)
    first, _ = step.micro_batches(shapes, samples=2, accumulated=False)
    real = models.build(model, {"attn_implementation": "eager"}, torch.device("cpu")).train()
    given = {name: own.clone() for name, own in batch.items()}
    count = torch.tensor(5)
    with LivingBytes(([*real.parameters(), *real.buffers()], given, count)) as taken:
        real(**given, num_items_in_batch=count).loss.backward()
    assert living(first, living(step.weights)[0])[0] == pytest.approx(taken.most, abs=8)
