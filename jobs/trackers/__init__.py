"""The instruments, one file each. The columns of the table follow from ``TRACKERS``.

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
