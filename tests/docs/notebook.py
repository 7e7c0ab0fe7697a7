"""The documentation's notebook, executed:

``python -m tests.docs.notebook`` writes its outputs anew.
"""

import os
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.docs.blocks import ROOT

PATH = ROOT / "docs/notebook.ipynb"


def executed() -> Any:
    """The notebook as it stands, run from the top in the repository's root; only what a reader sees
    is kept.
    """
    notebook = nbformat.read(PATH, as_version=4)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), PATH)
