"""From a YAML file to a plan, in milliseconds: only estimate/ imports torch, when asked.

problems.py     what is wrong with a file: line, key, message, "did you mean"
document.py     safe YAML that remembers the line of every key
quantities.py   "16GiB" and "5m" as bytes and seconds
shape.py        the file's keys and types, in pydantic: the one source of the JSON schema
mistakes.py     the content typed by that shape, or what is wrong with it in words
arguments.py    names that the installed transformers knows, and who owns which
axes.py         axis names and values, checked against jobs.techniques
base.py         the user's own TrainingArguments and DeepSpeed file, checked against the axes
trackers.py     experiment trackers, a row each
settings.py     SweepConfig: the checked configuration, as frozen data
config.py       load_config: all of the above together
validity.py     combinations that cannot be, as a table of rules with reasons
plan.py         SweepConfig -> trial specs, and records for the points ruled out
sizing.py       sets of techniques apart from any batch, and their trials at any batch
describe.py     the text of --dry-run
schema.py       the JSON schema that editors complete configs with
"""
