"""Ray: a cluster for the time of a sweep, and one slot per GPU under Tune.

connection.py      joins or starts the cluster, and builds ops on its nodes
ray_watch.py       ends the process with a sentence if Ray is lost
ray_nodes.py       lists and describes Ray's nodes, and runs functions on them
ray_tune.py        runs a session's trials with Tune, and decides which takes a free slot
searcher.py        passes trials from the session to Tune
tune_callback.py   passes Tune's events to the session: starts, records, lost actors
messages.py        what the driver and a slot's actor send each other
slot_actor.py      the actor that keeps a GPU's slot
gpu_slot.py        what the actor does: runs trials, and watches a GPU that is unhealthy
slot_watch.py      kills slots that do not answer, so that their trials run elsewhere
membership.py      nodes that join and leave during a sweep, and the slots that exist now
"""

import os

# Ray and Tune read these variables when they are imported or started, so they are set first.
# We do not want Tune's own files per trial, or its handling of Ctrl-C.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")
# An actor that does not end when it is asked to is killed after this many seconds.
os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "60")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# A local Ray gives its workers nearly the lowest priority, and trials would inherit that.
os.environ.setdefault("RAY_worker_niceness", "0")

from orchestrator.running.cluster.connection import ask_nodes, connected, prepare
from orchestrator.running.cluster.ray_tune import run_trials

__all__ = ["ask_nodes", "connected", "prepare", "run_trials"]
