"""NVML, by UUID: what the whole GPU held, context and libraries included, its clocks, temperature and energy."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil

from jobs.node import nvml
from jobs.record import Column
from jobs.trackers.base import Held, Moment, Tracker
from jobs.trackers.sources.time_series import Readings

_POLL_SECONDS = 0.05


class Device(Tracker):
    """Memory in use as a difference to before the trial, on a GPU held exclusively. Silent without a GPU.

    NVML's per-process figures are empty or wrong in containers, so foreign memory is reported instead of
    subtracted: ``gpu_used_before_bytes`` and ``gpu_foreign_processes`` say whether the GPU was clean, and stayed so.
    """

    columns: ClassVar = (
        Column("gpu_uuid", "string", "the GPU that ran the trial"),
        Column(
            "gpu_used_before_bytes", "int64", "in use on the GPU before the trial began", unit="B"
        ),
        Column(
            "gpu_foreign_processes",
            "int64",
            "most other processes seen on the GPU at once, before the trial and through training",
        ),
        Column("gpu_context_bytes", "int64", "what the bare CUDA context took", unit="B"),
        Column("gpu_model_bytes", "int64", "context, libraries and model weights", unit="B"),
        Column(
            "device_peak_bytes",
            "int64",
            "most memory the trial took of the GPU, context and libraries included (polled through training)",
            unit="B",
        ),
        Column("gpu_after_training_bytes", "int64", "still taken when training ended", unit="B"),
        Column(
            "hf_guide_memory_mib",
            "int64",
            "the guide's 'GPU memory occupied': NVML used after training, // 1024**2",
            unit="MiB",
        ),
        Column("gpu_temperature_celsius", "int64", "highest during the counted steps", unit="°C"),
        Column("gpu_sm_clock_mhz", "float64", "mean SM clock during the counted steps", unit="MHz"),
        Column(
            "gpu_power_capped_share",
            "float64",
            "share of the readings during the counted steps in which the power limit held the clocks down",
        ),
        Column(
            "gpu_utilization_percent", "float64", "mean kernel activity, counted steps", unit="%"
        ),
        Column("energy_joules", "float64", "energy the GPU drew over the counted steps", unit="J"),
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._most_used, self._last_used = 0, -1
        self._energy, self._temperature, self._clock, self._utilization = (
            Readings() for _ in range(4)
        )
        self._power_capped = Readings()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._session = nvml.session()
        self._nvml = self._session.__enter__()
        if uuids := nvml.visible_uuids():
            self._values["gpu_uuid"] = uuids[0]
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuids[0])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_polling()
        self._session.__exit__(None, None, None)

    def start(self, held: Held) -> None:
        if self._values:
            self._values["gpu_used_before_bytes"] = self._used() - held.device_bytes
            self._values["gpu_foreign_processes"] = self._others(own=bool(held.device_bytes))

    def at(self, moment: Moment, seconds: float) -> None:
        if not self._values:
            return
        used = self._look() if moment is Moment.TRAIN_END else self._used()
        taken = used - self._values["gpu_used_before_bytes"]
        if moment is Moment.CONTEXT:
            self._values["gpu_context_bytes"] = taken
        elif moment is Moment.MODEL:
            self._values["gpu_model_bytes"] = taken
        elif moment is Moment.TRAIN_BEGIN:
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()
        elif moment is Moment.TRAIN_END:
            self._stop_polling()
            self._values["gpu_after_training_bytes"] = taken
            self._values["hf_guide_memory_mib"] = used // 1024**2

    def counted(self, begin: float, end: float) -> None:
        if not self._values:
            return
        self._stop_polling()
        self._read()
        if len(self._energy):
            self._values["energy_joules"] = self._energy.growth(begin, end) / 1000
        if clocks := self._clock.within(begin, end):
            self._values["gpu_sm_clock_mhz"] = statistics.fmean(clocks)
        if capped := self._power_capped.within(begin, end):
            self._values["gpu_power_capped_share"] = statistics.fmean(capped)
        if utilization := self._utilization.within(begin, end):
            self._values["gpu_utilization_percent"] = statistics.fmean(utilization)
        if temperatures := self._temperature.within(begin, end):
            self._values["gpu_temperature_celsius"] = int(max(temperatures))

    def measurements(self) -> Mapping[str, Any]:
        if (
            self._thread is not None
        ):  # the training has failed, perhaps for what somebody else takes
            with contextlib.suppress(self._nvml.NVMLError):
                self._look()
        if not self._most_used:
            return self._values
        return {
            **self._values,
            "device_peak_bytes": self._most_used - self._values["gpu_used_before_bytes"],
        }

    def _used(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def _others(self, *, own: bool) -> int:
        """Processes on the GPU that are not the trial's, which has ``own`` there: itself, perhaps some that it made."""
        try:
            found = [
                one.pid for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
            ]
        except self._nvml.NVMLError:
            return 0
        if len(found) <= own:
            return 0
        process = psutil.Process()
        known = {process.pid, *(child.pid for child in process.children(recursive=True))}
        return len(found) - max(
            own, sum(pid in known for pid in found)
        )  # in a container they may go by other numbers

    def _poll(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self._look()
            self._read()

    def _look(self) -> int:
        """What is in use now, in bytes; the most of it is kept, and the most others that use it. Nobody comes without
        taking memory: while as much is in use as before, steps are not disturbed by the question who does."""
        used, before = self._used(), self._last_used
        self._most_used, self._last_used = max(self._most_used, used), used
        if used != before:
            others = max(self._values["gpu_foreign_processes"], self._others(own=True))
            self._values["gpu_foreign_processes"] = others
        return used

    def _read(self) -> None:
        nv = self._nvml
        with contextlib.suppress(nv.NVMLError):  # before Volta, or hidden by a virtual machine
            self._energy.take(nv.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        with contextlib.suppress(nv.NVMLError):
            self._utilization.take(nv.nvmlDeviceGetUtilizationRates(self._handle).gpu)
            self._clock.take(nv.nvmlDeviceGetClockInfo(self._handle, nv.NVML_CLOCK_SM))
            self._temperature.take(
                nv.nvmlDeviceGetTemperature(self._handle, nv.NVML_TEMPERATURE_GPU)
            )
        with contextlib.suppress(nv.NVMLError):
            held = nv.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
            self._power_capped.take(bool(held & nv.nvmlClocksThrottleReasonSwPowerCap))

    def _stop_polling(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
