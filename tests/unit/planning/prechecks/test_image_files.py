"""Damaged images are named before the first trial."""

import pytest
from PIL import Image

from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from tests.support.config_files import config_of

TEXT = """
model: {task: image-classification, architecture: vit}
data: {file: {path: birds, format: imagefolder}}
"""


@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
def test_image_that_ends_early_is_named_unless_it_is_hidden(ending, tmp_path):
    for kind in ("owl", "wren"):
        folder = tmp_path / "birds" / "train" / kind
        folder.mkdir(parents=True)
        for number in range(3):
            Image.effect_noise((90, 60), 50).convert("RGB").save(folder / f"{number}.{ending}")
    whole = (folder / f"1.{ending}").read_bytes()
    (folder / f"._1.{ending}").write_bytes(whole[:40])
    config = config_of(tmp_path, TEXT)
    assert check_files(config) == ()
    (folder / f"1.{ending}").write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(ConfigError, match=rf"path: .*wren/1\.{ending} cannot be decoded"):
        check_files(config)
