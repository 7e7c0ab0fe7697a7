"""Loads the constants of a GPU, which were measured once, from gpus/NAME.yaml."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "gpus"
_COMPLETE = "h200"
"""The GPU with a value for every constant."""
_DESCRIPTIONS = ("name", "source", "assumed")
"""Fields of ``Gpu`` that are not measured constants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """The constants of a GPU, and of the libraries on it."""

    name: str
    source: str
    """Where the figures come from."""
    multiprocessors: int
    threads_per_multiprocessor: int
    total_bytes: int
    """What NVML reports as the device's memory."""
    context_bytes: int
    """Memory that a bare CUDA context takes."""
    kernels_bytes: int
    """Memory of the kernels and libraries that are loaded during training."""
    cudnn_bytes: int
    """Memory that cuDNN adds to ``kernels_bytes``."""
    deepspeed_bytes: int
    """Memory of DeepSpeed's engine and communicator outside the allocator, up to stage 2."""
    deepspeed_zero3_bytes: int
    """The same at stage 3."""
    cublas_workspace_bytes: int
    """Workspace that each thread with matrix products (forward, backward) takes and keeps."""
    cublaslt_workspace_bytes: int
    """The same for products with a bias."""
    cudnn_attention: bool
    """Whether PyTorch prefers cuDNN's attention for 16-bit inputs (capability 9 and 10)."""
    assumed: tuple[str, ...] = ()
    """Names of constants that were not measured on this GPU. They have the H200's values."""

    @property
    def is_measured(self) -> bool:
        """Whether every constant was measured on this GPU."""
        return not self.assumed


def load_gpu(name: str) -> Gpu:
    """The constants of a GPU by name, or of the first in a file of ``doctor --calibrate``.

    Constants that such a file lacks (libraries, workspaces) have the H200's values. Raises
    ValueError, with the valid names, if there is no such GPU or file.
    """
    path = FOLDER / f"{name.lower()}.yaml"
    if path.is_file():
        return Gpu(name=name.lower(), **yaml.safe_load(path.read_text(encoding="utf-8")))
    if Path(name).is_file():
        return _calibrated(Path(name))
    choices = ", ".join(known_gpus())
    raise ValueError(f'no calibration for "{name}"; valid choices: {choices}, or a file')


def _calibrated(path: Path) -> Gpu:
    # The file is a list of GPUs. Take the first.
    measured = (yaml.safe_load(path.read_text(encoding="utf-8")) or [{}])[0]
    constants: dict[str, Any] = {}
    assumed = []
    for field in fields(Gpu):
        if field.name in measured:
            constants[field.name] = measured[field.name]
        elif field.name not in _DESCRIPTIONS:
            assumed.append(field.name)
    # All other constants keep the H200's values, and are listed in ``assumed``.
    constants |= {"name": str(measured.get("device", path)), "source": str(path)}
    return replace(load_gpu(_COMPLETE), **constants, assumed=tuple(assumed))


def known_gpus() -> list[str]:
    """The names that ``load_gpu`` takes."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
