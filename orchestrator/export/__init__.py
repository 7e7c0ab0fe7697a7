"""A measured row becomes files to train with, which need transformers but not this project.

writing.py          the folder
rebuilt_spec.py     the trial behind a row: its record, or rebuilt from the table and checked
arguments.py        TrainingArguments, DeepSpeed and accelerate settings as plain mappings
model_code.py       the model of train.py
data_code.py        the data of train.py
data_module.py      measured_data.py: the trials' own reading of a user's file
packages.py         requirements.txt
script.py           train.py and its README, from templates
generated_code.py   literals, names and comments: the only way of a value into generated code
source_lifting.py   the source of a technique's hook, lifted out of this project
"""

from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.writing import export, export_candidate

__all__ = ["NotExportableError", "export", "export_candidate"]
