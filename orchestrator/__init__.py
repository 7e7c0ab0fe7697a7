"""Measures training configurations and maps their memory/speed frontier; the driver needs no GPU.

Every verb of the command line is a function of ``orchestrator.api``, and a run is an object::

    from orchestrator import api

    run = api.sweep("configs/quickstart.yaml")            # measures, and returns the run
    run = api.load("runs/bert_large")                     # a run that was measured before
    answer = run.recommend(memory="24GiB")                # shows what to train with
    run.export(answer, "my_training")                     # writes train.py and its settings
    run.plot()                                            # the frontier as a picture
    run.to_pandas()                                       # one row per trial
    api.compare(run, "runs/bert_large_2")                 # what changed

The modules here are the doors of the command line: ``python -m orchestrator.sweep``.

__main__, sweep, tune, batch_size, predict, recommend, explain, compare, report, doctor, init,
completion          one file per verb
cli.py              options, notes and exit statuses that the verbs share
argument_types.py   sizes, durations, shares and runs from their text
api/                the Python interface
running/, export/   runs a sweep; writes a training script
search/, prediction/, reporting/
planning/, analysis/
storage/
labels.py, units.py, distribution.py
"""

import sys
from pathlib import Path
from typing import Any

# Import the package ``jobs`` that lies beside this one. Python would find a ``jobs`` of the working
# folder first, where ``python -m`` and Ray's workers look.
_HOME = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, _HOME)
import jobs  # noqa: E402, F401

sys.path.remove(_HOME)


def __getattr__(name: str) -> Any:
    """``api`` and its ``load``, for a script that imports no more than ``orchestrator``."""
    if name not in ("api", "load"):
        raise AttributeError(f"module 'orchestrator' has no attribute '{name}'")
    import orchestrator.api as api

    return api if name == "api" else api.load
