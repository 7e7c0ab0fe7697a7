"""What Python loads first in every process of a sweep whose trials only pretend to train."""

import sys

# A slot's parent, or a fresh process of a trial.
if {"jobs.isolation.forkserver", "--phase"} & set(sys.orig_argv):
    from tests.support import light_parent

    light_parent.install()
