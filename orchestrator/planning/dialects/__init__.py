"""Files of other trainers -> our configuration. Adding a dialect is one module with a table, and
one row of ``registry.py``. Read in this order:

rule.py                what a table says of one key: a fact, or why it is left out
facts.py               the facts about a training that all dialects share
axes.py                facts -> the values of our axes
models.py, models.yaml the shapes of public models
zero.py                DeepSpeed's configuration
assembled.py           facts and a shape -> our configuration
outcome.py             what became of each key
translate.py           reads the keys of some files, and makes one configuration
training_arguments.py  Hugging Face's TrainingArguments
axolotl.py, llama_factory.py, ms_swift.py, trl.py, accelerate.py   the other trainers
command_line.py        the options of a training command in a script
registry.py            the dialects, and which of them a file is written in
changes.py             from a measured configuration back to keys of the user's own file
inverse.py             the values of our axes as facts
text_edit.py           changes values in the text of a file, and nothing else
written.py             from the user's files to our YAML
"""
