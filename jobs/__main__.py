"""One trial without Ray, in this process: ``python -m jobs FILE.json`` prints its record as one JSON line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Run the trial that a spec file describes; exit status 0 whatever its outcome."""
    options = _command_line().parse_args()

    from jobs.isolation import child_main, preload
    from jobs.node import environment
    from jobs.spec import spec_from_json

    content = json.loads(options.spec.read_text())
    spec = spec_from_json(content.get("spec", content))
    for name, value in preload.environment(spec.needs.cpus or environment.cores()).items():
        os.environ.setdefault(name, value)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not the record
    phase = child_main.open_phase(options.phase) if options.phase else None
    if options.result is not None:
        child_main.run_and_record(spec, options.result, phase)
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, child_main.RESULT)
            child_main.run_and_record(spec, result, phase)
            replies.write(result.read_text() + "\n")
    replies.flush()
    sys.stdout.flush()
    os._exit(0)


def _command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobs", description=__doc__)
    spec_help = "a TrialSpec as JSON, or a record: its trial is run again"
    parser.add_argument("spec", type=Path, help=spec_help)
    parser.add_argument("--result", type=Path, help="write the record here instead of printing it")
    parser.add_argument("--phase", type=Path, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
