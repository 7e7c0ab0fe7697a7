"""The instruments, one file each; ``TRACKERS`` is their list. The table's columns and their units follow from it.

A new tracker is one file with a ``Tracker`` subclass and its name here.
"""

from jobs.trackers.allocator import Allocator
from jobs.trackers.base import Moment, Tracker
from jobs.trackers.device import Device
from jobs.trackers.host import Host
from jobs.trackers.launch_bound import LaunchBound
from jobs.trackers.losses import Losses
from jobs.trackers.operators import Operators
from jobs.trackers.steps import Steps

# Operators before Steps: what looking at a step costs is then the warm-up's.
TRACKERS: tuple[type[Tracker], ...] = (
    Allocator,
    Device,
    Host,
    Operators,
    Steps,
    LaunchBound,
    Losses,
)

__all__ = ["TRACKERS", "Moment", "Operators", "Steps", "Tracker"]
