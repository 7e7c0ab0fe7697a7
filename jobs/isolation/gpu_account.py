"""GPU memory of a slot while no child runs, and of a child's bare context."""

import time
from collections.abc import Callable

from jobs.node import gpu_fitness, nvml


def slot_gpu_bytes() -> int:
    """Memory in use on this slot's GPUs, by all processes; 0 without a GPU."""
    with nvml.session():  # all questions then share one initialisation
        return sum(map(nvml.used_bytes, nvml.visible_uuids()))


class GpuAccount:
    """Follows the memory in use on the slot's GPU from child to child. All sizes are bytes."""

    def __init__(self, gpu_bytes: Callable[[], int], release_seconds: float) -> None:
        self._gpu_bytes = gpu_bytes
        self._release_seconds = release_seconds
        self._idle_bytes = 0  # in use while there was no child
        self.context_bytes: int | None = None
        """A child's bare context; None: not measured yet, or not visible to NVML."""

    @property
    def is_alone(self) -> bool:
        """Whether a context was measured and no other process uses the GPU."""
        return self.context_bytes is not None and self._idle_bytes <= gpu_fitness.IDLE_BYTES

    def note_idle(self) -> None:
        self._idle_bytes = self._gpu_bytes()

    def note_context(self) -> None:
        """Measure the context that the first child since ``note_idle`` has created."""
        used = self._gpu_bytes()
        # With less memory in use, another process has left. Without a GPU both figures are 0.
        is_known = used > self._idle_bytes or not used
        self.context_bytes = used - self._idle_bytes if is_known else None

    def wait_for_release(self, *, has_waiting_child: bool) -> None:
        """Wait until a dead child's memory is free, or give up; a waiting child's context stays."""
        give_up = time.monotonic() + self._release_seconds
        staying = (self.context_bytes or 0) if has_waiting_child else 0
        while True:
            used = self._gpu_bytes()
            # The driver's own use of an idle GPU varies by some MiB.
            if used <= self._idle_bytes + staying + 16 * 2**20:
                return
            if time.monotonic() > give_up:
                # What has not been freed by now belongs to another process.
                self._idle_bytes = used - staying
                return
            time.sleep(0.02)
