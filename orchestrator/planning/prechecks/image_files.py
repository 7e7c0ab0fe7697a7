"""The first images of a folder, decoded: a damaged one would end a training within an epoch."""

import importlib.util
from pathlib import Path

from orchestrator.planning.prechecks.data_file import SCANNED_BYTES


def damaged_image(folder: Path) -> str:
    """A sentence about the first image of the training set that cannot be decoded; empty if there
    is none. Reads as many bytes as of a text file, the images in the order of their names."""
    if importlib.util.find_spec("PIL") is None:
        return ""
    from PIL import Image

    root = folder / "train" if (folder / "train").is_dir() else folder
    endings, read_bytes = Image.registered_extensions(), 0
    for path in sorted(path for path in root.rglob("*") if path.suffix.lower() in endings):
        # datasets leaves out hidden files, too.
        is_hidden = any(part.startswith((".", "__")) for part in path.relative_to(root).parts)
        if is_hidden or not path.is_file():
            continue
        read_bytes += path.stat().st_size
        if read_bytes > SCANNED_BYTES:
            break
        try:
            with Image.open(path) as image:
                # A JPEG is decoded at an eighth of its size, for which all of it is read.
                image.draft("RGB", (1, 1))
                image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return f"{path} cannot be decoded as an image; replace it, or remove it"
    return ""
