"""NVML, by UUID: what the whole GPU held, context and libraries included, its clocks, temperature and energy."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from jobs import nvml
from jobs.record import Column
from jobs.trackers.base import Moment, Tracker

_POLL_SECONDS = 0.05


class Device(Tracker):
    """Memory in use as a difference to before the trial, on a GPU held exclusively. Silent without a GPU.

    NVML's per-process figures are empty or wrong in containers, so foreign memory is reported instead of
    subtracted: ``gpu_used_before_bytes`` and ``gpu_foreign_processes`` say whether the GPU was clean.
    """

    columns: ClassVar = (
        Column(name="gpu_uuid", type="string", doc="the GPU that ran the trial"),
        Column(name="gpu_used_before_bytes", type="int64", unit="B", doc="in use on the GPU before the trial began"),
        Column(name="gpu_foreign_processes", type="int64", doc="other processes seen on the GPU before the trial"),
        Column(name="gpu_context_bytes", type="int64", unit="B", doc="what the bare CUDA context took"),
        Column(name="gpu_model_bytes", type="int64", unit="B", doc="context, libraries and model weights"),
        Column(
            name="device_used_bytes",
            type="int64",
            unit="B",
            doc="most memory the trial took of the GPU, context and libraries included (polled through training)",
        ),
        Column(name="gpu_after_training_bytes", type="int64", unit="B", doc="still taken when training ended"),
        Column(
            name="docs_gpu_memory_mb",
            type="int64",
            unit="MiB",
            doc="the guide's 'GPU memory occupied': NVML used after training, // 1024**2",
        ),
        Column(name="gpu_temperature_celsius", type="int64", unit="°C", doc="highest during the counted steps"),
        Column(name="gpu_sm_clock_mhz", type="float64", unit="MHz", doc="mean SM clock during the counted steps"),
        Column(name="gpu_utilization_percent", type="float64", unit="%", doc="mean kernel activity, counted steps"),
        Column(name="energy_joules", type="float64", unit="J", doc="energy the GPU drew over the counted steps"),
    )

    def __init__(self) -> None:
        uuids = nvml.visible_uuids()
        self._values: dict[str, Any] = {"gpu_uuid": uuids[0]} if uuids else {}
        self._samples: dict[str, list[int]] = {"used": [], "temperature": [], "clock": [], "utilization": []}
        self._counting = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._values:
            self._session = nvml.session()
            self._nvml = self._session.__enter__()
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._values["gpu_uuid"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_polling()
        if self._values:
            self._session.__exit__(None, None, None)

    def at(self, moment: Moment, seconds: float) -> None:
        if not self._values:
            return
        used = self._used()
        if moment is Moment.START:
            self._values["gpu_used_before_bytes"] = used
            self._values["gpu_foreign_processes"] = self._foreign_processes()
            return
        taken = used - self._values["gpu_used_before_bytes"]
        if moment is Moment.CONTEXT:
            self._values["gpu_context_bytes"] = taken
        elif moment is Moment.MODEL:
            self._values["gpu_model_bytes"] = taken
        elif moment is Moment.TRAIN_BEGIN:
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()
        elif moment is Moment.COUNTED_BEGIN:
            self._energy = self._millijoules()
            self._counting = True
        elif moment is Moment.COUNTED_END:
            self._counting = False
            if self._energy is not None and (now := self._millijoules()) is not None:
                self._values["energy_joules"] = (now - self._energy) / 1000
        elif moment is Moment.TRAIN_END:
            self._stop_polling()
            self._samples["used"].append(used)
            self._values["gpu_after_training_bytes"] = taken
            self._values["docs_gpu_memory_mb"] = used // 1024**2

    def measurements(self) -> Mapping[str, Any]:
        values = dict(self._values)
        samples = self._samples
        if samples["used"]:
            values["device_used_bytes"] = max(samples["used"]) - values["gpu_used_before_bytes"]
        if samples["temperature"]:
            values["gpu_temperature_celsius"] = max(samples["temperature"])
            values["gpu_sm_clock_mhz"] = sum(samples["clock"]) / len(samples["clock"])
            values["gpu_utilization_percent"] = sum(samples["utilization"]) / len(samples["utilization"])
        return values

    def _used(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def _foreign_processes(self) -> int:
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return 0
        return sum(process.pid != os.getpid() for process in running)

    def _millijoules(self) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError:
            return None  # before Volta, or hidden by a virtual machine

    def _poll(self) -> None:
        nv, samples = self._nvml, self._samples
        while not self._stop.wait(_POLL_SECONDS):
            samples["used"].append(self._used())
            if not self._counting:
                continue
            try:
                samples["utilization"].append(nv.nvmlDeviceGetUtilizationRates(self._handle).gpu)
                samples["clock"].append(nv.nvmlDeviceGetClockInfo(self._handle, nv.NVML_CLOCK_SM))
                samples["temperature"].append(nv.nvmlDeviceGetTemperature(self._handle, nv.NVML_TEMPERATURE_GPU))
            except nv.NVMLError:
                continue

    def _stop_polling(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
