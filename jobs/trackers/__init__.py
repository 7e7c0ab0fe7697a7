"""The instruments, one file each; ``TRACKERS`` is their list. The table's columns and their units follow from it.

A new tracker is one file with a ``Tracker`` subclass and its name here.
"""

from jobs.trackers.allocator import Allocator
from jobs.trackers.base import Moment, Tracker
from jobs.trackers.device import Device
from jobs.trackers.host import Host
from jobs.trackers.losses import Losses
from jobs.trackers.steps import Steps

TRACKERS: tuple[type[Tracker], ...] = (Allocator, Device, Host, Steps, Losses)

__all__ = ["TRACKERS", "Moment", "Steps", "Tracker"]
