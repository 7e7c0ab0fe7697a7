"""The constants of GPUs: measured ones in gpus/NAME.yaml, those of other cards in cards.yaml."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.units import KIB, MIB

FOLDER = Path(__file__).parent / "gpus"
_CARDS = FOLDER.with_name("cards.yaml")


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
    capability: float
    """CUDA's compute capability, as 9.0. It decides which attention kernels the GPU can run."""
    assumed: tuple[str, ...] = ()
    """Names of constants that were not measured on this GPU. They have the H200's values."""

    @property
    def is_measured(self) -> bool:
        return not self.assumed


def load_gpu(name: str) -> Gpu:
    """The constants of a GPU by name, or of the first in a file of ``doctor --calibrate``; those
    that it lacks (libraries, workspaces) are the H200's. Raises ValueError with the valid names."""
    path = FOLDER / f"{name.lower()}.yaml"
    if path.is_file():
        return Gpu(name=name.lower(), **yaml.safe_load(path.read_text(encoding="utf-8")))
    if card := _cards().get(name.lower()):
        constants = {"total_bytes": card["mib"] * MIB, **card}
        # PyTorch's defaults, from aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB on Hopper and
        # the data centre's Blackwell, else :4096:2:16:8.
        if constants["capability"] not in (9.0, 10.0):
            constants["cublas_workspace_bytes"] = 2 * 4 * MIB + 8 * 16 * KIB
        return _completed(constants, name.lower(), _CARDS.name)
    if Path(name).is_file():
        measured = (yaml.safe_load(Path(name).read_text(encoding="utf-8")) or [{}])[0]
        return _completed(measured, str(measured.get("device", name)), name)
    choices = ", ".join(known_gpus())
    raise ValueError(f'no calibration for "{name}"; valid choices: {choices}, or a file')


@functools.cache
def _cards() -> dict[str, dict[str, Any]]:
    cards: dict[str, dict[str, Any]] = yaml.safe_load(_CARDS.read_text(encoding="utf-8"))
    return cards


def _completed(measured: Mapping[str, Any], name: str, source: str) -> Gpu:
    """A GPU whose other constants are the H200's. They are listed in ``assumed``."""
    described: dict[str, Any] = {"name": name, "source": source}
    names = [field.name for field in fields(Gpu) if field.name not in (*described, "assumed")]
    constants = {key: measured[key] for key in names if key in measured}
    assumed = tuple(key for key in names if key not in measured)
    return replace(load_gpu("h200"), **described, **constants, assumed=assumed)


def known_gpus() -> list[str]:
    """The names that ``load_gpu`` takes."""
    return sorted({*_cards(), *(path.stem for path in FOLDER.glob("*.yaml"))})
