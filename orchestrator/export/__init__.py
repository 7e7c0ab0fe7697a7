"""A measured row becomes files to train with, which need transformers and its friends but not this project.

trial.py        the trial behind a row: its record, or rebuilt from the table and checked by its digest
arguments.py    TrainingArguments, DeepSpeed and accelerate settings as plain mappings
source.py       the code of a technique's hook, lifted out of this project
script.py       train.py and its README, from templates
writing.py      the folder
"""

from orchestrator.export.rebuilt_spec import NotExportableError
from orchestrator.export.writing import export, export_candidate

__all__ = ["NotExportableError", "export", "export_candidate"]
