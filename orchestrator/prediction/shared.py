"""What is computed once for many trials."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.prediction.streams.replay import ReplayedPeaks

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.compiled_block import CompiledBlock
    from orchestrator.prediction.tracing.deep_step import Built
    from orchestrator.prediction.tracing.fakes.fake_update import Updates
    from orchestrator.prediction.tracing.known_results import KnownResults


@dataclass(frozen=True)
class Shared:
    """What is computed once for the trials of all models and GPUs."""

    is_likely: bool = False
    """Whether likely figures alone are asked for, which need one order of an epoch's rows."""
    updates: dict[tuple[str, str], Updates] = field(default_factory=dict)
    """Of each optimizer step, and of what it trains."""
    blocks: dict[str, CompiledBlock] = field(default_factory=dict)
    """By what decides their graph."""
    replays: dict[tuple[object, ...], ReplayedPeaks] = field(default_factory=dict)
    """By digest of the streams."""
    built: dict[str, Built] = field(default_factory=dict)
    """By ``built_key``."""

    @functools.cached_property
    def known(self) -> KnownResults:
        """The results of operators."""
        from orchestrator.prediction.tracing.known_results import KnownResults

        return KnownResults()


@functools.cache
def shared_in_process(*, is_likely: bool) -> Shared:
    """What a process that is asked again and again computes once."""
    return Shared(is_likely=is_likely)
