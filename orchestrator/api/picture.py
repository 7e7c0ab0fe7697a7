"""A picture of a run, as a notebook shows it."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.storage.layout import written_beside
from orchestrator.units import memory


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A picture that shows itself in a notebook."""

    png: bytes

    def save(self, path: Path | str) -> Path:
        """Write the picture to a PNG file, in place of any earlier one; returns its path."""
        target = Path(path)
        with written_beside(target) as partial:
            partial.write_bytes(self.png)
        return target

    def __repr__(self) -> str:
        return f"<Picture: PNG of {memory(len(self.png))}; save(PATH) writes it>"

    def _repr_png_(self) -> bytes:
        return self.png
