"""The dataset card of a run on the Hugging Face Hub: header, report, and how to load the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting import markdown
from orchestrator.reporting.report import Report
from orchestrator.storage import layout

_TAGS = ["benchmark", "training", "gpu-memory", "throughput", "pareto-front"]
_LOADING = """\
## Load it

```python
import datasets, orchestrator

# One row a trial; units and meanings are in the file.
rows = datasets.load_dataset("{repository}", "trials", split="train")
# Answers questions: run.frontier(), run.recommend(...), run.compare(...).
run = orchestrator.load("{uri}")
```
"""


def render(report: Report, uri: str) -> str:
    """The card of the run at ``uri`` (``hf://datasets/...``), with its tables for the viewer."""
    # The Hub's viewer calls each Parquet file a "configuration", with a name of its own.
    tables = [_table(path) for path in sorted(report.files) if path.suffix == ".parquet"]
    front = {"pretty_name": _name(report.dataset), "tags": _TAGS, "configs": tables}
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    text = markdown.render(report, picture=layout.FRONTIER_PLOT)
    # The repository is the OWNER/NAME of hf://datasets/OWNER/NAME/...
    repository = "/".join(uri.split("/")[3:5])
    loading = _LOADING.format(repository=repository, uri=uri)
    return f"---\n{header}---\n\n{text}\n{loading}"


def _name(dataset: Dataset) -> str:
    """The run's name, with the hardware that measured it."""
    name = dataset.name or "Run"
    hardware = ", ".join(dict.fromkeys(results.hardware for results in dataset.environments))
    if hardware:
        name = f"{name} on {hardware}"
    return name


def _table(path: Path) -> dict[str, Any]:
    """The header entry by which the Hub's viewer finds a table."""
    about: dict[str, Any] = {"config_name": path.stem, "data_files": path.name}
    if path.name == layout.TRIALS:
        about["default"] = True
    return about
