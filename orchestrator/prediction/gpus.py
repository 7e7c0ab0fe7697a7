"""A GPU's constants, measured once and kept as data: gpus/NAME.yaml."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "gpus"
_COMPLETE = "h200"
"""The GPU with a value for every constant."""
_DESCRIPTIONS = ("name", "source", "assumed")
"""Fields that are no constants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU, and how the libraries behave on it. In bytes unless named otherwise."""

    name: str
    source: str
    """Where the figures come from."""
    multiprocessors: int
    threads_per_multiprocessor: int
    total_bytes: int
    """What NVML reports as the device's memory."""
    context_bytes: int
    """A bare CUDA context."""
    kernels_bytes: int
    """Kernels and libraries loaded while training."""
    cudnn_bytes: int
    """What cuDNN adds to them."""
    deepspeed_bytes: int
    """What DeepSpeed's engine and communicator take outside the allocator, up to stage 2."""
    deepspeed_zero3_bytes: int
    """The same at stage 3."""
    cublas_workspace_bytes: int
    """Taken by each thread that multiplies matrices (forward, backward), and kept."""
    cublaslt_workspace_bytes: int
    """The same for products with a bias."""
    cudnn_attention: bool
    """Whether PyTorch prefers cuDNN's attention for 16-bit inputs (capability 9 and 10)."""
    assumed: tuple[str, ...] = ()
    """Constants that were not measured on this GPU: they are the H200's."""

    @property
    def is_measured(self) -> bool:
        """Whether every constant was measured on this GPU."""
        return not self.assumed


def load_gpu(name: str) -> Gpu:
    """The constants of a GPU by name, or of the first in a file of ``doctor --calibrate``.

    Constants that such a file lacks (libraries, workspaces) are the H200's. Raises ValueError with
    the valid choices.
    """
    path = FOLDER / f"{name.lower()}.yaml"
    if path.is_file():
        return Gpu(name=name.lower(), **yaml.safe_load(path.read_text(encoding="utf-8")))
    if Path(name).is_file():
        return _calibrated(Path(name))
    choices = ", ".join(known_gpus())
    raise ValueError(f'no calibration for "{name}"; valid choices: {choices}, or a file')


def _calibrated(path: Path) -> Gpu:
    # A file of several GPUs is read for the first.
    measured = (yaml.safe_load(path.read_text(encoding="utf-8")) or [{}])[0]
    constants: dict[str, Any] = {}
    assumed = []
    for field in fields(Gpu):
        if field.name in measured:
            constants[field.name] = measured[field.name]
        elif field.name not in _DESCRIPTIONS:
            assumed.append(field.name)
    # What the file lacks is the H200's, and listed as assumed.
    constants |= {"name": str(measured.get("device", path)), "source": str(path)}
    return replace(load_gpu(_COMPLETE), **constants, assumed=tuple(assumed))


def known_gpus() -> list[str]:
    """The names that ``load_gpu`` takes."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
