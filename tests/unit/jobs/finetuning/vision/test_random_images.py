"""Random images with texts: the batch is the one that each family's own processor would make."""

from typing import Any

import pytest
import torch

from jobs.finetuning.vision.image_layouts import (
    FAMILIES,
    ImageLayoutError,
    UnknownValueError,
    layout_of,
)
from jobs.spec import DataSpec
from jobs.trial import models
from jobs.trial.data import IGNORED, load
from tests.support.vision_models import CONFIGS, tiny_images, tiny_vision_model
from tests.support.vision_processors import (
    idefics_processor,
    llava_processor,
    picture,
    qwen_processor,
)

# As published: Qwen/Qwen2.5-VL-3B-Instruct, HuggingFaceTB/SmolVLM2-2.2B-Instruct,
# llava-hf/llava-1.5-7b-hf and google/gemma-3-4b-it.
QWEN = {
    "vision_config.patch_size": 14,
    "vision_config.spatial_merge_size": 2,
    "vision_config.temporal_patch_size": 2,
    "vision_config.in_channels": 3,
}
SMOLVLM = {"vision_config.image_size": 384, "vision_config.patch_size": 14, "scale_factor": 3}
LLAVA = {
    "vision_config.image_size": 336,
    "vision_config.patch_size": 14,
    "vision_config.model_type": "clip_vision_model",
}
PIXTRAL = {**LLAVA, "vision_config.model_type": "pixtral"}
FULL_LLAVA = {**LLAVA, "vision_feature_select_strategy": "full"}


@pytest.mark.parametrize(
    ("family", "values", "side", "image_tokens", "tokens"),
    [
        # Patches: the nearest whole number of them.
        ("qwen2_5_vl", QWEN, 672, 24**2, 24**2 + 2),
        ("qwen2_5_vl", QWEN, 685, 24**2, 24**2 + 2),
        ("qwen2_5_vl", QWEN, 687, 25**2, 25**2 + 2),
        # Sixteen tiles and the whole image, each between tokens that name it.
        ("smolvlm", SMOLVLM, 4 * 384, 17 * 81, 16 * (81 + 2) + 3 + (81 + 3) + 1),
        # The class token is left out by default.
        ("llava", LLAVA, None, 576, 576),
        ("llava", FULL_LLAVA, None, 577, 577),
    ],
)
def test_layout_has_the_tokens_of_the_published_model(family, values, side, image_tokens, tokens):
    layout = layout_of(family, values.get, side)
    assert (layout.image_tokens, layout.tokens) == (image_tokens, tokens)


@pytest.mark.parametrize(
    ("family", "values", "side", "reason"),
    [
        ("llava", LLAVA, 448, "llava has images of 336 pixels a side, not 448"),
        ("qwen2_vl", QWEN, None, "qwen2_vl takes images of any size: set"),
        ("llava", PIXTRAL, None, "tower of pixtral"),
        ("mllama", {}, 448, f"cannot be made for mllama, .*{', '.join(FAMILIES)}"),
        ("gemma3", {}, None, r"gemma3 has an unknown vision_config\.image_size"),
    ],
)
def test_layout_that_is_not_known_is_refused_in_a_sentence(family, values, side, reason):
    with pytest.raises(ImageLayoutError, match=reason) as refused:
        layout_of(family, values.get, side)
    # A configuration that is built may know what its keys do not say.
    assert isinstance(refused.value, UnknownValueError) is (family == "gemma3")


TASK = "image-text-to-text"


def batch_of(family: str, samples: int = 2, **fields: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """A batch of random samples, and the configuration of its tiny model."""
    config = models.architecture_config(tiny_vision_model(family))
    data = DataSpec(synthetic=tiny_images(family, **fields))
    dataset, collate = load(data, TASK, config, samples=None, seed=0)
    return collate([dataset[index] for index in range(samples)]), config


@pytest.mark.parametrize("family", CONFIGS)
def test_batch_of_each_family_is_one_that_its_model_learns_from(family):
    batch, config = batch_of(family, images=2, sequence_length=60, padding=0.1)
    is_image = batch["input_ids"] == config.image_token_id
    assert (batch["labels"][is_image] == IGNORED).all()
    assert (batch["labels"][batch["attention_mask"] == 0] == IGNORED).all()
    torch.manual_seed(0)
    model = models.build(tiny_vision_model(family), {}, torch.device("cpu")).train()
    # The model itself counts image tokens, and raises if its features are more or fewer.
    loss = model(**batch).loss
    loss.backward()
    assert loss.isfinite()
    tower = model.get_encoder(modality="image")
    assert any(weight.grad is not None for weight in tower.parameters())


@pytest.mark.parametrize(
    ("family", "processor", "mark", "size"),
    [
        ("llava", llava_processor, "<image>", None),
        ("qwen2_vl", qwen_processor, "<|image_pad|>", 32),
        ("qwen2_vl", qwen_processor, "<|image_pad|>", 70),
        ("idefics3", idefics_processor, "<image>", 64),
        ("idefics3", idefics_processor, "<image>", 32),
    ],
    ids=["llava", "qwen", "qwen_rounded", "idefics_tiles", "idefics_shrunk"],
)
def test_batch_equals_that_of_the_familys_processor(family, processor, mark, size):
    side = size or 32
    images = [[picture(side, side)], [picture(side, side, seed=1)]]
    texts = [f"a {mark} good film"] * 2
    made = processor()(text=texts, images=images, padding=True, return_tensors="pt")
    # Idefics enlarges every image to its longest edge, which is two tiles here.
    asked = 64 if family == "idefics3" else size
    batch, config = batch_of(family, image_size=asked, sequence_length=80)
    assert {*made} == batch.keys() - {"labels"}
    tensors = {*made} - {"input_ids", "attention_mask", "mm_token_type_ids"}
    for name in tensors:
        assert batch[name].shape == made[name].shape
        assert batch[name].dtype == made[name].dtype
    image_token = made["input_ids"].mode().values[0]
    counts = (made["input_ids"] == image_token).sum(1)
    assert torch.equal((batch["input_ids"] == config.image_token_id).sum(1), counts)
    for name in ("image_grid_thw", "pixel_attention_mask"):
        if name in made:
            assert torch.equal(batch[name], made[name])


def test_sample_without_room_for_a_text_is_refused():
    with pytest.raises(ValueError, match=r"1 of shape 1×3×32×32 take 16 tokens of llava") as error:
        batch_of("llava", sequence_length=17)
    assert "give it 18 or more" in str(error.value)
    batch, _ = batch_of("llava", sequence_length=18)
    assert ((batch["labels"] != IGNORED).sum(1) == 2).all()


def test_image_token_beyond_the_vocabulary_is_refused():
    config = models.architecture_config(tiny_vision_model("llava", image_token_index=160))
    data = DataSpec(synthetic=tiny_images("llava"))
    with pytest.raises(ValueError, match=r"vocabulary of 160: set model.config.image_token_index"):
        load(data, TASK, config, samples=None, seed=0)


def test_random_texts_never_hold_an_image_token():
    # Half of the vocabulary is drawn from, in which the image token lies.
    config = models.architecture_config(tiny_vision_model("qwen2_vl"))
    dataset, _ = load(
        DataSpec(synthetic=tiny_images("qwen2_vl", samples=200)), TASK, config, samples=None, seed=0
    )
    counts = {int((row["input_ids"] == 150).sum()) for row in map(dataset.__getitem__, range(200))}
    assert counts == {4}


def test_padding_for_which_images_leave_no_room_is_refused():
    # The images of a sample, 16 tokens each, and a text fill more than half of 32 tokens.
    with pytest.raises(ValueError, match="leaves no room for the images"):
        batch_of("paligemma", sequence_length=32, padding=0.5)


def test_prefix_of_paligemma_is_read_at_once_and_not_learnt():
    batch, _ = batch_of("paligemma", padding=0.2)
    assert torch.equal(batch["token_type_ids"] == 1, batch["labels"] != IGNORED)
    assert (batch["token_type_ids"][:, :17] == 0).all()
