"""The dataset card of a run on the Hugging Face Hub: what its viewer reads, the report, and how to load the tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from orchestrator.analysis.summary import Summary
from orchestrator.reporting import markdown
from orchestrator.storage import run_metadata

_TAGS = ["benchmark", "training", "gpu-memory", "throughput", "pareto-front"]
_DEFAULT = {run_metadata.TRIALS: {"default": True}}
_LOADING = """\
## Load it

```python
import datasets, orchestrator

rows = datasets.load_dataset("{repository}", "trials", split="train")   # units and meanings are in the file
measured = orchestrator.load("{uri}")                                   # frontier, recommend, compare
```
"""


def render(summary: Summary, *, tables: Iterable[Path], uri: str) -> str:
    """The card of the run at ``uri`` (``hf://datasets/...``); every table is a configuration of the dataset."""
    hardware = ", ".join(dict.fromkeys(cohort.hardware for cohort in summary.cohorts))
    front = {
        "pretty_name": " on ".join(part for part in (summary.run.name or "Run", hardware) if part),
        "tags": _TAGS,
        "configs": [
            {
                "config_name": name.removesuffix(".parquet"),
                "data_files": name,
                **_DEFAULT.get(name, {}),
            }
            for name in sorted(path.name for path in tables)
        ],
    }
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    report = markdown.render(summary, picture=run_metadata.PICTURE)
    repository = "/".join(uri.split("/")[3:5])
    return f"---\n{header}---\n\n{report}\n{_LOADING.format(repository=repository, uri=uri)}"
