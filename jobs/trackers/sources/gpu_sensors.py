"""A GPU's sensors as NVML reads them: energy, clock, temperature, utilization and power limit."""

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from jobs.trackers.sources.series import TimeSeries


class GpuSensors:
    """Readings of one GPU over time. A sensor that the GPU lacks leaves no readings."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._sensors: Mapping[str, Callable[[], float]] = {
            # Millijoules since the driver was loaded.
            "energy_joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
            "gpu_utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "gpu_sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "gpu_temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
            # A bit for each reason; only the power limit's is recorded.
            "gpu_power_capped_share": lambda: bool(
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
                & nvml.nvmlClocksThrottleReasonSwPowerCap
            ),
        }
        """Column of the ``Device`` tracker -> its sensor."""
        self._readings: defaultdict[str, TimeSeries] = defaultdict(TimeSeries)

    def read(self) -> None:
        """Read every sensor once. Some GPUs and virtual machines hide some of them."""
        for column, read in self._sensors.items():
            with contextlib.suppress(self._nvml.NVMLError):
                self._readings[column].append(read())

    def between(self, begin: float, end: float) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for column, series in self._readings.items():
            readings = series.between(begin, end)
            if column == "energy_joules" and len(series):
                values[column] = series.growth(begin, end)
            elif column == "gpu_temperature_celsius" and readings:
                # The highest: a GPU throttles at its peak, not at its mean.
                values[column] = int(max(readings))
            elif readings:
                # Readings come at equal intervals, so their mean is the mean over time.
                values[column] = statistics.fmean(readings)
        return values
