"""Trains a vision-language model by hand, with nothing of this project.

python -m tests.gpu.bare_vision CASE

A case is a small Qwen2.5-VL with random weights, trained in bf16 for six steps on random images of
448 pixels with texts of 1024 tokens. The last line printed is a JSON object.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText, Qwen2_5_VLConfig, set_seed

from tests.gpu.bare_decoder import figures_of

STEPS = 6
MICRO_BATCH = 4
TOKENS = 1024
IMAGE_SIZE = 448
IMAGE_TOKEN = 31_000
CONFIG: dict[str, Any] = {
    "tie_word_embeddings": True,
    "image_token_id": IMAGE_TOKEN,
    "video_token_id": IMAGE_TOKEN + 1,
    "text_config": {
        "vocab_size": 32_000,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1000000.0,
            "mrope_section": [16, 24, 24],
        },
    },
    "vision_config": {
        "depth": 8,
        "hidden_size": 640,
        "intermediate_size": 2560,
        "num_heads": 8,
        "patch_size": 14,
        "fullatt_block_indexes": [3, 7],
        "out_hidden_size": 1024,
    },
}
CASES = ("plain", "checkpoint", "frozen", "lora")


class Samples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Texts in which 256 tokens are an image."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        ids = generator.integers(100, 30_000, (STEPS * MICRO_BATCH, TOKENS))
        # An image is 32 × 32 patches, and four patches make a token.
        ids[:, 2:258] = IMAGE_TOKEN
        self.ids = torch.from_numpy(ids)
        self.pixels = torch.from_numpy(generator.standard_normal((1024, 1176), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.ids[index]
        is_image = ids == IMAGE_TOKEN
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": ids.masked_fill(is_image, -100),
            "mm_token_type_ids": is_image.long(),
            "pixel_values": self.pixels,
            "image_grid_thw": torch.tensor([[1, 32, 32]]),
        }


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Texts one above the other, images one after the other."""
    batch = {}
    for name in rows[0]:
        join = torch.cat if name in ("pixel_values", "image_grid_thw") else torch.stack
        batch[name] = join([row[name] for row in rows])
    return batch


def model_of(case: str) -> torch.nn.Module:
    """The model, with a frozen tower or with LoRA on the language model."""
    with torch.device("cuda"):
        model = AutoModelForImageTextToText.from_config(
            Qwen2_5_VLConfig(**CONFIG), dtype=torch.float32
        )
    if case == "frozen":
        model.model.visual.requires_grad_(False)
    if case == "lora":
        from peft import LoraConfig, get_peft_model

        targets = r".*language_model.*\.(q|k|v|o|gate|up|down)_proj"
        options = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0}
        model = get_peft_model(model, LoraConfig(target_modules=targets, **options))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", choices=CASES)
    case = parser.parse_args().case
    set_seed(42)
    figures = figures_of(
        model_of(case),
        Samples(),
        steps=STEPS,
        micro_batch=MICRO_BATCH,
        collator=collate,
        checkpointing=case == "checkpoint",
    )
    print(json.dumps({"case": case, **figures}), flush=True)


if __name__ == "__main__":
    main()
