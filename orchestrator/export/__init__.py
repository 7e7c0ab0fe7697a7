"""Turns a measured row into files to train with, which need transformers but not this project.

writing.py          writes the folder
source_trial.py     the spec of a row's trial: from its record, or rebuilt from the table
arguments.py        TrainingArguments, DeepSpeed and accelerate settings as plain mappings
model_and_data_code.py  the model and the data of train.py
trl_code.py         what TRL's Trainers need beside that
packages.py         requirements.txt
script.py           train.py and its README, from templates
generated_code.py   turns values into literals, names and comments of the generated code
source_lifting.py   a technique's hook, or what reads data, as source of this project
"""

from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.writing import export, export_candidate

__all__ = ["NotExportableError", "export", "export_candidate"]
