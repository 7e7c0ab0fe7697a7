"""Runs one trial in this process, without Ray: ``python -m jobs FILE.json`` prints its record."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from jobs.spec import TrialSpec, spec_from_json


def main() -> None:
    """Run the trial that a file describes; the exit status is 0 whatever its outcome."""
    options = _command_line().parse_args()
    spec = _read_spec(options.spec)
    _set_environment(spec)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the record

    from jobs.isolation import child_main

    phase = child_main.open_phase(options.phase) if options.phase else None
    status = 0
    if options.result is not None:
        status = child_main.run_and_record(spec, options.result, phase)
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, child_main.RESULT)
            child_main.run_and_record(spec, result, phase)
            replies.write(result.read_text() + "\n")
    replies.flush()
    sys.stdout.flush()
    os._exit(status)  # the kernel frees the GPU faster than the exit handlers of libraries would


def _command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobs", description=__doc__)
    spec_help = "a TrialSpec as JSON, or a record: its trial is run again"
    parser.add_argument("spec", type=Path, help=spec_help)
    parser.add_argument("--result", type=Path, help="write the record here instead of printing it")
    parser.add_argument("--phase", type=Path, help=argparse.SUPPRESS)
    return parser


def _read_spec(file: Path) -> TrialSpec:
    """The spec in a file, which holds the spec itself or a record."""
    content = json.loads(file.read_text())
    return spec_from_json(content.get("spec", content))


def _set_environment(spec: TrialSpec) -> None:
    """Set what libraries read when they are loaded, unless the caller has set it."""
    from jobs.node import environment
    from jobs.node.process_variables import process_variables

    cpus = spec.needs.cpus or environment.cores()
    for name, value in process_variables(cpus).items():
        os.environ.setdefault(name, value)


if __name__ == "__main__":
    main()
