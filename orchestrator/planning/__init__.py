"""From a YAML file to a plan, in milliseconds and without a heavy import. Read in this order:

problems.py          what is wrong with a file: line, key, message, "did you mean"
document.py          safe YAML that remembers the line of every key
renamed_keys.py      old keys under their new names, with a note
scalar_types.py      sizes, durations and other values that are written in more than one way
schema_models.py     the file's keys, types and meanings, in pydantic
validation_errors.py the content typed by these models, or what is wrong with it in words
search_kinds.py      the kinds of search and their options: data
search_choice.py     the file's choice of a search, checked against them
loggers.py           experiment loggers, a row each
arguments.py         names that the installed transformers knows, and which axis owns each
axes.py              the keys that are written in axes: grids, exclusions, trials, baseline
base_arguments.py    the user's TrainingArguments and DeepSpeed file, checked against the axes
settings.py          SweepConfig: the checked configuration, as frozen data
build_config.py      a checked file as a SweepConfig
config.py            load_config: all of the above together
validity.py          combinations that cannot run, as a table of rules with reasons
plan.py              SweepConfig -> trial specs, and records for what a rule forbids
technique_sets.py    configurations apart from their batch, and their trials at any batch
tune_space/          the configurations that tune chooses from, where a file names no axes
schema.py            the JSON schema that editors complete configs with
"""
