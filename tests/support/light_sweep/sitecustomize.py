"""What Python loads first in every process of a sweep whose trials only pretend to train."""

import sys

if "jobs.isolation.forkserver" in sys.orig_argv:
    from tests.support import light_parent

    light_parent.install()
