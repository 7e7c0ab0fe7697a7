"""Peak rates of dense matrix products, as GPU makers state them."""

from __future__ import annotations

from collections.abc import Mapping

_NVIDIA = "NVIDIA's data sheet, dense tensor-core rates (half of those with sparsity)"

PEAKS: Mapping[str, tuple[Mapping[str, float], str]] = {
    "H200": (
        {"bf16": 989.4e12, "fp16": 989.4e12, "tf32": 494.7e12, "fp32": 66.9e12},
        f"{_NVIDIA}: H200 SXM",
    ),
    "H100 PCIe": (
        {"bf16": 756e12, "fp16": 756e12, "tf32": 378e12, "fp32": 51.2e12},
        f"{_NVIDIA}: H100 PCIe",
    ),
    "H100": (
        {"bf16": 989.4e12, "fp16": 989.4e12, "tf32": 494.7e12, "fp32": 66.9e12},
        f"{_NVIDIA}: H100 SXM",
    ),
    "A100": ({"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12}, f"{_NVIDIA}: A100"),
    "A40": (
        {"bf16": 149.7e12, "fp16": 149.7e12, "tf32": 74.8e12, "fp32": 37.4e12},
        f"{_NVIDIA}: A40",
    ),
    "A10": ({"bf16": 125e12, "fp16": 125e12, "tf32": 62.5e12, "fp32": 31.2e12}, f"{_NVIDIA}: A10"),
    "L40S": ({"bf16": 362e12, "fp16": 362e12, "tf32": 183e12, "fp32": 91.6e12}, f"{_NVIDIA}: L40S"),
    "L4": ({"bf16": 121e12, "fp16": 121e12, "tf32": 60e12, "fp32": 30.3e12}, f"{_NVIDIA}: L4"),
    "V100": ({"fp16": 125e12, "fp32": 15.7e12}, "NVIDIA's data sheet: V100 SXM2"),
    "T4": ({"fp16": 65e12, "fp32": 8.1e12}, "NVIDIA's data sheet: T4"),
}
"""Words of the GPU's name -> (precision -> flop/s, source). The first entry that matches counts."""


def peak(device: str, precision: str) -> tuple[float, str] | None:
    """Flop per second and their source; None for a device or a precision not in ``PEAKS``."""
    words = device.replace("-", " ").split()
    for name, (rates, source) in PEAKS.items():
        if all(word in words for word in name.split()) and precision in rates:
            return rates[precision], source
    return None
