"""What Python loads first in every process of a chaos run: trials' faults, the driver's clock."""

from __future__ import annotations

import os
import sys

if sys.orig_argv[-1:] == ["jobs.isolation.forkserver"]:
    from tests.chaos import child

    child.install(training=os.environ["CHAOS_TRIALS"] == "training")
elif "orchestrator.sweep" in sys.orig_argv:
    from tests.chaos import clock

    clock.install()
elif sys.orig_argv[-1:] == ["jobs.node.gpu_fitness"]:
    from tests.chaos.control import Control

    os._exit(Control.here().gpu(os.environ["CHAOS_NODE"]) == "dead")
