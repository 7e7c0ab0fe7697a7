"""Count the models of the shipped configurations for ``shipped_sizes.json``.

python -m tests.support.shipped_sizes configs/*.yaml
"""

import json
import sys
from pathlib import Path

from jobs.spec import to_json
from orchestrator.planning import prechecks
from orchestrator.planning.config import load_config
from orchestrator.planning.library_facts import answer_of, digest

FILE = Path(prechecks.__file__).with_name("shipped_sizes.json")


def main() -> None:
    sizes = {}
    for path in sys.argv[1:]:
        model = to_json(load_config(path).model)
        sizes[digest(model)] = answer_of({"model": model}, f"counting {path}", print)["parameters"]
    FILE.write_text(json.dumps(sizes, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
