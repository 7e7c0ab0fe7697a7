"""The constants of GPUs: measured ones in gpus/NAME.yaml, those of other cards in cards.yaml."""

import functools
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import yaml

from orchestrator.planning.problems import advice
from orchestrator.units import GIB, KIB, MIB

FOLDER = Path(__file__).parent / "gpus"
_CARDS = FOLDER.with_name("cards.yaml")
Kernels = Literal["volta", "ampere", "consumer", "hopper"]
"""GPUs for which PyTorch picks the same attention kernels, by the oldest or the best known."""
REPRESENTATIVES: Mapping[Kernels, str] = {
    "hopper": "h200",
    "ampere": "a100_80gb",
    "consumer": "rtx_4090",
    "volta": "t4",
}
"""The card that stands for all with the same attention kernels."""
REACHED: Mapping[str, float] = {"all-reduce": 0.69, "all-gather": 0.55, "reduce-scatter": 0.52}
"""Share of a link's rate that a collective reaches: 512 MiB between two H100s by NVLink take 1.72,
1.09 and 1.14 ms (``doctor --links``)."""


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
    integers_bytes: int
    """Memory that bitsandbytes' products of 8-bit integers add to it."""
    deepspeed_bytes: int
    """Memory of DeepSpeed's engine and communicator outside the allocator, up to stage 2."""
    deepspeed_zero3_bytes: int
    """The same at stage 3."""
    communicator_bytes: int
    """Memory that NCCL takes outside the allocator when several GPUs train together."""
    cublas_workspace_bytes: int
    """Workspace that each thread with matrix products (forward, backward) takes and keeps."""
    cublaslt_workspace_bytes: int
    """The same for products with a bias."""
    capability: float
    """CUDA's compute capability, as 9.0. It decides which attention kernels the GPU can run."""
    bytes_per_second: float = 0.0
    """Bandwidth of the memory."""
    link_bytes_per_second: float = 0.0
    """Of each direction of its link to the other GPUs of a node; 0: not known."""
    flops_per_second: Mapping[str, float] = field(default_factory=dict)
    """Number format -> dense rate of matrix products; a format without tensor cores is missing."""
    assumed: tuple[str, ...] = ()
    """Names of constants that were not measured on this GPU. They have the H200's values."""

    def is_measured(self, *, deepspeed: bool = False) -> bool:
        """Whether the sizes of context and libraries were; ``deepspeed``: with its engine."""
        names = {"context_bytes", "kernels_bytes", "cudnn_bytes"}
        if deepspeed:
            names |= {"deepspeed_bytes", "deepspeed_zero3_bytes"}
        return names.isdisjoint(self.assumed)

    @property
    def outside_bytes(self) -> int:
        """What every training takes beside the allocator's memory."""
        return self.context_bytes + self.kernels_bytes

    @property
    def kernels(self) -> Kernels:
        """The attention kernels that it runs, after PyTorch's sdp_utils.cpp: no FlashAttention
        before 8.0, cuDNN's on the data centre's GPUs since Hopper, and less shared memory on others
        than on an A100."""
        if self.capability < 8.0:
            return "volta"
        if self.capability in (9.0, 10.0):
            return "hopper"
        is_consumers = 8.6 <= self.capability <= 8.9 or self.capability >= 12.0
        return "consumer" if is_consumers else "ampere"


def load_gpu(name: str) -> Gpu:
    """The constants of a GPU by name, or of the first in a file of ``doctor --calibrate``; those
    that it lacks (libraries, workspaces) are the H200's. Raises ValueError with the valid names."""
    path = FOLDER / f"{name.lower()}.yaml"
    if path.is_file():
        return _completed(_read(path), name.lower())
    if card := _read(_CARDS).get(name.lower()):
        return _completed(_constants(card), name.lower())
    if Path(name).is_file():
        read = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
        measured = read[0] if read and isinstance(read, list) else {}
        if not measured.get("capability"):
            raise ValueError(f"{name}: no GPU was measured")
        rates = {
            "bytes_per_second": measured.get("copy_bytes_per_second", 0.0),
            **_link_rate(measured.get("links", ())),
        }
        return _completed({"source": name, **rates, **measured}, str(measured["device"]))
    if len(meant := _meant(name)) == 1:
        return load_gpu(meant[0])
    raise ValueError(
        f'no calibration for "{name}"; {advice(_letters(_bare(name)), meant or known_gpus())}, '
        "or a file of `doctor --calibrate`"
    )


_SAME_CARD = re.compile(r"nvidia|geforce|tesla|sxm\d?|hbm\d?e?|blackwell|\w+ edition")
"""What names of the same card add to each other. A card with PCIe is slower than that with SXM."""


def _bare(name: str) -> str:
    return _SAME_CARD.sub("", name.lower())


def _link_rate(links: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The rate at which the measured exchange of the largest tensors takes as long as forecast;
    nothing if none was measured, and the link is the H200's."""
    if not links:
        return {}
    largest = max(own["bytes"] for own in links)
    rates = [
        own["bus_bytes_per_second"] / REACHED[own["operation"]]
        for own in links
        if own["bytes"] == largest
    ]
    return {"link_bytes_per_second": statistics.fmean(rates)}


def _meant(name: str) -> list[str]:
    """The cards that a name such as "NVIDIA H100 80GB HBM3", "4090" or "a100" may mean."""
    bare = _bare(name)
    wanted = _letters(bare)
    cards = {card: _letters(card) for card in known_gpus()}
    found = [card for card, own in cards.items() if own == wanted]
    if not found and (size := re.search(r"\b(\d+) ?gb\b", bare)):
        model = _letters(bare[: size.start()])
        found = [card for card, own in cards.items() if own == model]
        # A card reports between its GB, less what it keeps for itself, and as many GiB.
        gb = int(size[1])
        found = [own for own in found if 0.95e9 * gb <= load_gpu(own).total_bytes <= GIB * gb]
    begun = (card for card, own in cards.items() if wanted and own.startswith(wanted))
    ended = (card for card, own in cards.items() if len(wanted) > 2 and own.endswith(wanted))
    return found or [*begun] or [*ended]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def card_of_size(total_bytes: int, name: str) -> Gpu:
    """A card of which only the memory is known, with the kernels of most cards of any size."""
    card = load_gpu(REPRESENTATIVES["consumer"])
    return replace(card, name=name, source="its size", total_bytes=total_bytes)


def known_cards() -> list[Gpu]:
    """Every GPU that has a name, the smallest memory first."""
    return sorted(map(load_gpu, known_gpus()), key=attrgetter("total_bytes"))


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _constants(card: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a card of cards.yaml, in the units of ``Gpu``."""
    constants = {
        "total_bytes": card["mib"] * MIB,
        "bytes_per_second": card["gb_per_second"] * 1e9,
        "link_bytes_per_second": card["link_gb_per_second"] * 1e9,
        "flops_per_second": {name: rate * 1e12 for name, rate in card["tflops"].items()},
        **card,
    }
    # PyTorch's defaults, from aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB on Hopper and the
    # data centre's Blackwell, else :4096:2:16:8.
    if card["capability"] not in (9.0, 10.0):
        constants["cublas_workspace_bytes"] = 2 * 4 * MIB + 8 * 16 * KIB
    return constants


def _completed(measured: Mapping[str, Any], name: str) -> Gpu:
    """A GPU whose other constants are the H200's. They are listed in ``assumed``."""
    names = [own.name for own in fields(Gpu) if own.name not in ("name", "assumed")]
    constants = {key: measured[key] for key in names if key in measured}
    assumed = tuple(key for key in names if key not in measured)
    return Gpu(name=name, **{**_read(FOLDER / "h200.yaml"), **constants}, assumed=assumed)


def known_gpus() -> list[str]:
    """The names that ``load_gpu`` takes."""
    return sorted({*_read(_CARDS), *(path.stem for path in FOLDER.glob("*.yaml"))})
