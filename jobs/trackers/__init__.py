"""The instruments, one file each. The columns of the table follow from ``TRACKERS``.

tracker         the interface of all trackers, and the moments of a trial
cuda_allocator  PyTorch's peaks of allocated and reserved memory
device          the whole GPU by NVML: memory, other processes, clocks and energy
host            the peak of the process's resident memory
operators       attention kernels and the dtype of matrix products; on a CPU, a step's memory
step_times      the time of every step, and the rates over the counted ones
launch_bound    time that the GPU waits for launches, and the gaps between steps
step_losses     the loss of every step
ragged_data     rows of unequal length: lengths, padding, memory of random batches
sources/        what these are read from: CUDA events, dispatched operators, readings

A new tracker is a file with a subclass of ``Tracker``, and its name here.
"""

from jobs.trackers.cuda_allocator import Allocator
from jobs.trackers.device import Device
from jobs.trackers.host import Host
from jobs.trackers.launch_bound import LaunchBound
from jobs.trackers.operators import Operators
from jobs.trackers.ragged_data import RaggedData
from jobs.trackers.step_losses import Losses
from jobs.trackers.step_times import Steps
from jobs.trackers.tracker import Moment, Tracker

# Operators before Steps, so that the time of inspecting a warm-up step counts as warm-up.
TRACKERS: tuple[type[Tracker], ...] = (
    Allocator,
    Device,
    Host,
    Operators,
    Steps,
    LaunchBound,
    Losses,
    RaggedData,
)

__all__ = ["TRACKERS", "Moment", "Operators", "RaggedData", "Steps", "Tracker"]
