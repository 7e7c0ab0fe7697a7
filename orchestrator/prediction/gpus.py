"""A GPU's own constants, measured once and kept as data: gpus/NAME.yaml."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "gpus"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """What a prediction needs to know of a GPU and of the libraries' behaviour on it. Bytes unless named otherwise."""

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
    """What DeepSpeed's engine and its communicator take outside the allocator, up to stage 2."""
    deepspeed_zero3_bytes: int
    """The same at stage 3."""
    cublas_workspace_bytes: int
    """Taken from the allocator by each thread that multiplies matrices (forward, backward) and kept."""
    cublaslt_workspace_bytes: int
    """The same for products with a bias."""
    cudnn_attention: bool
    """Whether PyTorch prefers cuDNN's attention for 16-bit inputs (compute capability 9 and 10)."""


def load_gpu(name: str) -> Gpu:
    """The constants of a GPU by its file's name, or of the first in a file that ``doctor --calibrate`` wrote.

    What such a file does not hold (libraries, workspaces) is taken from the H200's. Raises ValueError naming the valid
    choices.
    """
    own = FOLDER / f"{name.lower()}.yaml"
    if own.is_file():
        return Gpu(name=name.lower(), **yaml.safe_load(own.read_text(encoding="utf-8")))
    file = Path(name)
    if not file.is_file():
        raise ValueError(
            f'no calibration for "{name}"; valid choices: {", ".join(known_gpus())}, or a file'
        )
    measured = (yaml.safe_load(file.read_text(encoding="utf-8")) or [{}])[0]
    constants = {
        field.name: measured[field.name] for field in fields(Gpu) if field.name in measured
    }
    return replace(
        load_gpu("h200"), **constants, name=str(measured.get("device", name)), source=name
    )


def known_gpus() -> list[str]:
    """The names that ``load_gpu`` takes."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
