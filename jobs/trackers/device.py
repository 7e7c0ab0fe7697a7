"""The whole GPU by NVML: memory with context and libraries, other processes, clocks and energy."""

import contextlib
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import psutil

from jobs.node import nvml
from jobs.record import Column
from jobs.trackers.sources.series import TimeSeries
from jobs.trackers.tracker import Moment, Tracker


class Device(Tracker):
    """A trial's memory is what is in use on the GPU, less what was in use before the trial."""

    columns: ClassVar = (
        Column.text("gpu_uuid", "UUID of the GPU that ran the trial"),
        Column.nbytes("gpu_used_before_bytes", "GPU memory in use before the trial began"),
        Column.count("gpu_foreign_processes", "Most other processes on the GPU at once"),
        Column.nbytes("gpu_context_bytes", "GPU memory that the bare CUDA context took"),
        Column.nbytes("device_peak_bytes", "Peak GPU memory, context and libraries included"),
        Column(
            "hf_guide_memory_mib",
            "int64",
            "The Hugging Face guide's 'GPU memory occupied': GPU memory in use after training, "
            "divided by 1024**2 and rounded down",
            unit="MiB",
        ),
        Column("gpu_temperature_celsius", "int64", "Highest temperature in counted steps", "°C"),
        Column("gpu_sm_clock_mhz", "float64", "Mean SM clock during the counted steps", "MHz"),
        Column.number(
            "gpu_power_capped_share",
            "Share of the counted steps' readings in which the power limit held clocks down",
        ),
        Column("energy_joules", "float64", "Energy that the GPU drew in the counted steps", "J"),
    )

    def __init__(self, poll_seconds: float = 0.05) -> None:
        self._poll_seconds = poll_seconds
        self._values: dict[str, Any] = {}  # empty without a GPU
        self._peak_used = 0
        self._last_used = -1
        self._stop = threading.Event()
        self._polling = threading.Lock()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._session = nvml.session()
        self._nvml = self._session.__enter__()
        uuids = nvml.visible_uuids()
        if uuids:
            self._values["gpu_uuid"] = uuids[0]
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuids[0])
            self._sensors = GpuSensors(self._nvml, self._handle)
        return self

    def release(self) -> None:
        self._stop_polling()
        self._session.__exit__(None, None, None)

    def start(self, context_bytes: int) -> None:
        """Note what other processes use. A context that was created ahead is the trial's own."""
        if self._values:
            self._values["gpu_used_before_bytes"] = self._used_bytes() - context_bytes
            others = self._foreign_processes(has_context=context_bytes > 0)
            self._values["gpu_foreign_processes"] = others

    def at(self, moment: Moment, seconds: float) -> None:
        """Note the GPU memory taken so far. The memory is polled from TRAIN_BEGIN to TRAIN_END."""
        if not self._values:
            return
        # The reading at the end of training counts for the peak, too.
        used = self._poll_memory() if moment is Moment.TRAIN_END else self._used_bytes()
        # NVML counts the whole GPU: the trial's part is the growth since it began.
        taken = used - self._values["gpu_used_before_bytes"]
        if moment is Moment.CONTEXT:
            self._values["gpu_context_bytes"] = taken
        elif moment is Moment.TRAIN_BEGIN:
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()
        elif moment is Moment.TRAIN_END:
            self._stop_polling()
            # The guide prints whole MiB, rounded down (its function print_gpu_utilization).
            self._values["hf_guide_memory_mib"] = used // 1024**2

    def counted(self, begin: float, end: float) -> None:
        if self._values:
            # The memory is polled on: what follows, such as a step on the longest rows, counts.
            self._sensors.read()
            self._values |= self._sensors.between(begin, end)

    def measurements(self) -> Mapping[str, Any]:
        if self._thread is not None:
            # Training has failed, perhaps because another process has just taken memory.
            with contextlib.suppress(self._nvml.NVMLError):
                self._poll_memory()
        if not self._peak_used:
            return self._values
        peak = self._peak_used - self._values["gpu_used_before_bytes"]
        return {**self._values, "device_peak_bytes": peak}

    def _used_bytes(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def _foreign_processes(self, *, has_context: bool) -> int:
        """How many processes that are not ours are on the GPU. We are if we have a context."""
        own_processes = int(has_context)
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return 0
        if len(processes) <= own_processes:
            return 0
        this = psutil.Process()
        our_pids = {this.pid, *(child.pid for child in this.children(recursive=True))}
        listed_ours = sum(process.pid in our_pids for process in processes)
        # In a container NVML may list processes under other ids: at least this one is ours.
        return len(processes) - max(own_processes, listed_ours)

    def _poll(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            self._poll_memory()
            self._sensors.read()

    def _poll_memory(self) -> int:
        """Bytes in use now; updates their peak and the number of other processes. Listing processes
        disturbs the steps, so they are counted only if the memory has changed."""
        with self._polling:  # what the other thread has seen must be counted first
            used = self._used_bytes()
            self._peak_used = max(self._peak_used, used)
            if used != self._last_used:
                self._last_used = used
                most_so_far = self._values["gpu_foreign_processes"]
                now = self._foreign_processes(has_context=True)
                self._values["gpu_foreign_processes"] = max(most_so_far, now)
            return used

    def _stop_polling(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class GpuSensors:
    """Readings of one GPU over time. A sensor that the GPU lacks leaves no readings."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._sensors: Mapping[str, Callable[[], float]] = {
            # Millijoules since the driver was loaded.
            "energy_joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
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
