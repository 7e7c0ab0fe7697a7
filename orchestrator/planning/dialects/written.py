"""Writes the configuration that was made of other trainers' files, and reads those files."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from orchestrator.planning.dialects.registry import UnreadableFileError, read_file
from orchestrator.planning.dialects.translate import Translation, translate
from orchestrator.storage.layout import written_beside
from orchestrator.storage.user_files import refuse_used_file


def translated(
    files: Sequence[Path], *, model: str | None = None, model_config: Path | None = None
) -> Translation:
    """What our configuration makes of some files, which together describe one training. Raises
    UnreadableFileError for a file in no known dialect."""
    config = None
    if model_config is not None:
        try:
            config = json.loads(model_config.read_text(encoding="utf-8"))
            config["model_type"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnreadableFileError(f"{model_config}: no config.json ({error})") from None
    return translate(
        [read_file(path) for path in files],
        model=model,
        model_config=config,
        folder=files[0].parent,
    )


def write(translation: Translation, table: str, target: Path, *, force: bool) -> None:
    """Write the configuration, with ``table`` as comments above it. Raises FileExistsError."""
    refuse_used_file(target, force=force)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in table.splitlines())
    document = yaml.safe_dump(dict(translation.document), sort_keys=False, width=100)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(target) as partial:
        partial.write_text(f"{comments}{document}", encoding="utf-8")
