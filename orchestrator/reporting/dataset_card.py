"""The dataset card of a run on the Hugging Face Hub: header, report, and how to load the tables."""

import yaml

from orchestrator.reporting import markdown
from orchestrator.reporting.report import Report
from orchestrator.storage import layout

_TAGS = ["benchmark", "training", "gpu-memory", "throughput", "pareto-front"]
_LOADING = """\
## Load it

```python
import datasets
from orchestrator import api

# One row a trial; units and meanings are in the file.
rows = datasets.load_dataset("{repository}", "trials", split="train")
# Answers questions: run.frontier(), run.recommend(...), run.compare(...).
run = api.load("{uri}")
```
"""


def render(report: Report, uri: str) -> str:
    """The card of the run at ``uri`` (``hf://datasets/...``), with its tables for the viewer."""
    dataset = report.dataset
    hardware = ", ".join(dict.fromkeys(results.hardware for results in dataset.environments))
    name = dataset.name or "Run"
    # The Hub's viewer calls each Parquet file a "configuration", with a name of its own.
    tables = []
    for path in sorted(report.files):
        if path.suffix == ".parquet":
            default = {"default": True} if path.name == layout.TRIALS else {}
            tables.append({"config_name": path.stem, "data_files": path.name, **default})
    pretty = f"{name} on {hardware}" if hardware else name
    front = {"pretty_name": pretty, "tags": _TAGS, "configs": tables}
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    text = markdown.render(report)
    # The repository is the OWNER/NAME of hf://datasets/OWNER/NAME/...
    repository = "/".join(uri.split("/")[3:5])
    loading = _LOADING.format(repository=repository, uri=uri)
    return f"---\n{header}---\n\n{text}\n{loading}"
