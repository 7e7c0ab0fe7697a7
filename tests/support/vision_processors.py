"""Processors of tiny vision-language models, made on the spot: no Hub, and no torchvision."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.support.word_tokenizer import word_tokenizer

WORDS = ("[PAD]", "[UNK]", "[END]", "user:", "assistant:", "good", "bad", "film", "a", "yes", "no")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}"
    "[END] {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def picture(height: int, width: int, seed: int = 0) -> Any:
    """A random RGB image without a black pixel."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(1, 255, (height, width, 3), dtype=np.uint8))


def save_llava_processor(folder: Path) -> str:
    """Save a processor for images of 32 pixels in patches of 8; its image token is 11."""
    llava_processor().save_pretrained(folder)
    return str(folder)


def llava_processor() -> Any:
    """The processor that ``save_llava_processor`` saves."""
    from transformers import LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    images = CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    return LlavaProcessor(
        images,
        _tokenizer(["<image>"]),
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def idefics_processor() -> Any:
    """A processor for tiles of 32 pixels, four tokens each, of images of at most 64 pixels."""
    from transformers import Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    special = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    special += [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    return Idefics3Processor(images, _tokenizer(special), image_seq_len=4)


def qwen_processor() -> Any:
    """A processor for patches of 8 pixels, of which four make a token."""
    from transformers import Qwen2VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.processing_utils import ProcessorMixin

    images = Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, min_pixels=16 * 16, max_pixels=10**7
    )
    tokenizer = _tokenizer(["<|image_pad|>", "<|video_pad|>"])
    # It wants a processor of videos, too, which needs torchvision. No test has a video.
    with patch.object(ProcessorMixin, "check_argument_for_proper_class"):
        return Qwen2VLProcessor(images, tokenizer, None)


def _tokenizer(special: Sequence[str]) -> Any:
    return word_tokenizer(WORDS, additional_special_tokens=list(special))
