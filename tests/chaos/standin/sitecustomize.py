"""What Python loads first in every process of a chaos run: trials' faults, the driver's clock."""

import os
import sys
import time

from tests.chaos.control import Control

if sys.orig_argv[-1:] == ["jobs.isolation.forkserver"]:
    from tests.chaos import child

    child.install()
elif "orchestrator.sweep" in sys.orig_argv:
    real = time.time
    # Files keep the system's time.
    time.time = lambda: real() + Control().read("clock")
elif sys.orig_argv[-1:] == ["jobs.node.gpu_fitness"]:
    os._exit(Control().read(f"gpus/{os.environ['CHAOS_NODE']}") == "dead")
