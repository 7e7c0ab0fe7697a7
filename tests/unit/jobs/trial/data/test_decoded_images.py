"""The user's own images: decoded when a row is read, in the model's size, with a class each."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from jobs.spec import DatasetFile, DataSpec, ModelSpec
from jobs.trial import models
from jobs.trial.data import fitted, load

TASK = "image-classification"
CONFIG: Any = SimpleNamespace(image_size=4, num_channels=3, num_labels=2)
COLOURS = {"black": 0, "grey": 51, "white": 255}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image of each colour, in a folder of its name; no two have one size."""
    for size, (name, value) in enumerate(COLOURS.items(), 5):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (size, 2 * size), (value,) * 3).save(tmp_path / f"images/{name}/1.png")
    return tmp_path


def loaded(path: Path, file_format: Any, config: Any = CONFIG, **fields: Any) -> Any:
    file = DatasetFile(path=str(path), format=file_format, **fields)
    return load(DataSpec(file=file), TASK, config, samples=None, seed=0)[0]


@pytest.mark.parametrize("is_table", [False, True])
def test_images_get_the_models_size_and_the_class_of_their_folder(is_table, folder):
    path, options = folder / "images", {"file_format": "imagefolder"}
    if is_table:
        rows = [
            {"picture": {"bytes": (path / name / "1.png").read_bytes()}, "kind": name}
            for name in COLOURS
        ]
        path = folder / "rows.parquet"
        datasets.Dataset.from_list(rows).to_parquet(path)
        columns = {"images": "picture", "labels": "kind"}
        options = {"file_format": "parquet", "columns": columns}
    rows = loaded(path, **options)
    for number, value in enumerate(COLOURS.values()):
        pixels = rows[number]["pixel_values"]
        assert pixels.shape == (3, 4, 4)
        assert torch.allclose(pixels, torch.full((3, 4, 4), value / 127.5 - 1))
        assert rows[number]["labels"] == number
    # As the Trainer removes columns, and an export splits rows.
    assert rows.remove_columns("labels").select([2])[0]["pixel_values"].max() == 1


def test_checkpoint_reads_images_by_its_processor_and_gets_a_last_layer_for_their_classes(folder):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    own = ViTConfig(**sizes, intermediate_size=8, image_size=6, patch_size=3, num_labels=2)
    ViTForImageClassification(own).save_pretrained(folder / "vit")
    spec = ModelSpec(task=TASK, name_or_path=str(folder / "vit"))
    with pytest.raises(ValueError, match="has no image processor"):
        loaded(folder / "images", "imagefolder", models.architecture_config(spec))
    processor = ViTImageProcessor(size={"height": 6, "width": 6}, do_normalize=False)
    processor.save_pretrained(folder / "vit")
    rows = loaded(folder / "images", "imagefolder", models.architecture_config(spec))
    assert rows[1]["pixel_values"].shape == (3, 6, 6)
    assert rows[1]["pixel_values"].mean() == pytest.approx(51 / 255)
    model = models.build(fitted(spec, rows, config_labels=2), {}, torch.device("cpu"))
    assert model(rows[1]["pixel_values"][None]).logits.shape == (1, 3)
