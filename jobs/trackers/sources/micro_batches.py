"""Counts what the loop trained on: the samples and tokens of every micro-batch."""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.trackers.sources.series import DeviceSeries

CountSamples = Callable[[Mapping[str, Any]], Any]
"""Counts the samples of a batch: an int, or a scalar tensor on the batch's device."""


class MicroBatches:
    """One entry per micro-batch, in the order of training."""

    def __init__(self) -> None:
        self._samples: list[int] = []  # empty if the samples of a batch are counted on the device
        self._samples_on_device = DeviceSeries(integers=True)
        self._tokens: list[int] = []
        self._has_mask: list[bool] = []
        """Whether the inputs had an attention mask. Without one, no token is padding."""
        self._real_tokens = DeviceSeries(integers=True)
        """Tokens that are not padding, of each micro-batch with a mask."""

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, inputs: Mapping[str, Any], count_samples: CountSamples | None = None) -> None:
        """Count a micro-batch, whose tensors are on the device. Waits for nothing."""
        samples = (count_samples or _samples_in)(inputs)
        if isinstance(samples, int):
            self._samples.append(samples)
        else:
            self._samples_on_device.append(samples)
        # Data without token ids (images) has no tokens to count.
        self._tokens.append(inputs["input_ids"].numel() if "input_ids" in inputs else 0)
        mask = inputs.get("attention_mask")
        self._has_mask.append(mask is not None)
        if mask is not None:
            self._real_tokens.append(mask.sum())

    def rates(
        self, first: int, seconds: float, expected: tuple[float, float, float] = (1.0, 1.0, 1.0)
    ) -> dict[str, Any]:
        """Throughput of the micro-batches from ``first`` on, in ``seconds``. May wait. In this time
        there are ``expected`` so many times their positions, real tokens and samples."""
        positions, tokens, samples = expected
        counted = self._samples or self._samples_on_device.values()
        rates: dict[str, Any] = {"samples_per_second": sum(counted[first:]) * samples / seconds}
        if places := sum(self._tokens[first:]):
            rates["tokens_per_second"] = places * positions / seconds
            rates["real_tokens_per_second"] = sum(self._real()[first:]) * tokens / seconds
        return rates

    def _real(self) -> list[float]:
        """The tokens of each micro-batch that are not padding."""
        # Some batches have a mask and others none, so the masks' sums are fewer than the batches.
        masked = iter(self._real_tokens.values() if any(self._has_mask) else ())
        pairs = zip(self._tokens, self._has_mask, strict=True)
        return [next(masked) if has_mask else tokens for tokens, has_mask in pairs]


def _samples_in(inputs: Mapping[str, Any]) -> int:
    """The batch size: the length of the first tensor that is not a scalar."""
    return next(len(value) for value in inputs.values() if getattr(value, "ndim", 0))
