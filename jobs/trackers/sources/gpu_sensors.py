"""A GPU's sensors as NVML reads them: energy, clock, temperature, utilization and power limit."""

from __future__ import annotations

import contextlib
import statistics
from typing import Any

from jobs.trackers.sources.time_series import TimeSeries


class GpuSensors:
    """Readings of one GPU over time. A sensor that the GPU lacks leaves no readings."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._energy_millijoules = TimeSeries()
        self._utilization = TimeSeries()
        self._clock_mhz = TimeSeries()
        self._temperature = TimeSeries()
        self._power_capped = TimeSeries()

    def read(self) -> None:
        """Read every sensor once. Some GPUs and virtual machines hide some of them."""
        nvml = self._nvml
        handle = self._handle
        with contextlib.suppress(nvml.NVMLError):  # GPUs before Volta do not count energy
            self._energy_millijoules.append(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        with contextlib.suppress(nvml.NVMLError):
            self._utilization.append(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            self._clock_mhz.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            celsius = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            self._temperature.append(celsius)
        with contextlib.suppress(nvml.NVMLError):
            # ``reasons`` has a bit for each reason. Only the power limit's bit is recorded.
            reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            self._power_capped.append(bool(reasons & nvml.nvmlClocksThrottleReasonSwPowerCap))

    def between(self, begin: float, end: float) -> dict[str, Any]:
        """Columns of the ``Device`` tracker from ``begin`` to ``end`` (``time.perf_counter``)."""
        values: dict[str, Any] = {}
        if len(self._energy_millijoules):
            # NVML counts millijoules since the driver was loaded. The counter's growth is the
            # energy of the window.
            values["energy_joules"] = self._energy_millijoules.growth(begin, end) / 1000
        means = {
            "gpu_sm_clock_mhz": self._clock_mhz,
            "gpu_power_capped_share": self._power_capped,
            "gpu_utilization_percent": self._utilization,
        }
        for column, series in means.items():
            readings = series.between(begin, end)
            if readings:
                # Readings come at equal intervals, so their mean is the mean over time.
                values[column] = statistics.fmean(readings)
        temperatures = self._temperature.between(begin, end)
        if temperatures:
            # The highest: a GPU throttles at its peak, not at its mean.
            values["gpu_temperature_celsius"] = int(max(temperatures))
        return values
