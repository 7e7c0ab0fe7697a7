"""A slot's parent whose preload takes no time and whose trials only pretend to train.

``python -m tests.support.light_parent`` serves a slot as ``jobs.isolation.forkserver`` does, with
real processes. The trial's choice ``act`` or its fault says what its child does: see ``_pretend``.

``variables`` make the slots of whole sweeps have such parents.
"""

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from jobs import errors
from jobs.isolation import preload
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.techniques.hooks import registered
from jobs.trial import run as trial
from tests.support import faults
from tests.support.disks import fill

COMMAND = (sys.executable, "-m", "tests.support.light_parent")
"""The ``parent_command`` of a ``Slot``."""
NOTE_VARIABLE = "LIGHT_PARENT_NOTE"
"""Environment variable: a file to which each trial's child writes its process id when it begins."""
HEARTBEAT_VARIABLE = "LIGHT_PARENT_HEARTBEAT"
"""Environment variable: seconds between two heartbeats."""
DIE_VARIABLE = "LIGHT_PARENT_DIE"
"""Environment variable: if set, every child is killed before it has read its trial."""
FULL_VARIABLE = "LIGHT_PARENT_FULL"
"""Environment variable: if set, there is no room for the parent's folder."""
SECONDS_VARIABLE = "LIGHT_PARENT_SECONDS"
"""Environment variable: how long a trial takes whose micro-batch is over 1."""


def variables(seconds: float = 0.0) -> dict[str, str]:
    """Environment variables of a sweep whose trials only pretend to train.

    Those with a micro-batch of 1 end at once, the others after ``seconds``.
    Python loads the file ``sitecustomize.py`` of the first folder before all other code.
    """
    folders = (Path(__file__).parent / "light_sweep", Path(__file__).parents[2])
    paths = [str(folder) for folder in folders]
    return {"PYTHONPATH": os.pathsep.join(paths), SECONDS_VARIABLE: str(seconds)}


def _pretend(
    spec: TrialSpec, announce: Any, *, scratch: Path, context_bytes: int = 0
) -> TrialRecord:
    """Do what the trial's choice ``act`` says: end well, hang, or write a large file.

    If the trial has a fault of ``tests.support.faults``, meet it before that.
    """
    announce("requirements")
    note = os.environ.get(NOTE_VARIABLE)
    if note:
        Path(note).write_text(str(os.getpid()))
    announce("context")
    announce("rendezvous")
    announce("model")
    fault = spec.settings.hooks.get("model")
    if fault is not None:
        assert fault.name.startswith(faults.PREFIX), "a technique's hook needs a model"
        registered(fault.name)(None, spec.model.task, None, **fault.arguments)
    if spec.micro_batch > 1:
        time.sleep(float(os.environ.get(SECONDS_VARIABLE, "0")))
    act = str(spec.choices.get("act", "end"))
    phases = ["first_step", "warm_up", "steps"]
    if spec.measure.evaluate_and_save:
        phases.append("evaluate")
    outcome = Outcome.OK
    rule = ""
    reason = ""
    phase = ""
    try:
        for phase in phases:
            announce(phase)
        if act == "hang":
            time.sleep(600)
        elif act == "fill":
            fill(scratch / "filler")
        elif act == "write":
            Path(scratch, "states.bin").write_bytes(bytes(2**20))
    except Exception as error:
        outcome, rule, reason = errors.classify(error)
    phase = "" if outcome is Outcome.OK else phase
    return TrialRecord(spec=spec, outcome=outcome, rule=rule, reason=reason, phase=phase)


def _no_room(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/new-orchestrator-slot-x")


def install() -> None:
    """Let this process be a light parent. Called before the parent's own code is imported."""
    preload.preload = lambda: 0.0
    preload.unclean = lambda: ""
    trial.run = faults.striking(_pretend)
    from jobs.isolation import ranks  # now: it takes the functions above from their modules

    ranks.wait_for = faults.patient(ranks.wait_for)


def main() -> None:
    install()
    from jobs.isolation import child_handle, child_main, forkserver, scratch

    child_handle.HEARTBEAT_SECONDS = float(os.environ.get(HEARTBEAT_VARIABLE, "5"))
    if DIE_VARIABLE in os.environ:
        child_main._create_context = lambda: os.kill(os.getpid(), signal.SIGKILL)
    if FULL_VARIABLE in os.environ:
        scratch.tempfile.mkdtemp = _no_room
    forkserver.main()


if __name__ == "__main__":
    main()
