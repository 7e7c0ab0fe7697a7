"""From a YAML file to a plan, in milliseconds and without a heavy import. Read in this order:

problems.py          what is wrong with a file: line, key, message, "did you mean"
document.py          safe YAML that remembers the line of every key
config_types.py      sections, sizes, durations and other values that are written in several ways
search_options.py    the kinds of search and their options
loggers.py           the experiment loggers and their arguments
config_data.py       the keys of the sections model and data
config_model.py      the file's keys, types and meanings, in pydantic: one declaration each
config_errors.py     the content typed by these models, or what is wrong with it in words
library_facts.py     what the installed libraries know: asked of a process once, remembered
technique_parameters.py  techniques with parameters of the user's own
arguments.py         names that the installed transformers knows, and which the runner decides
axes.py              the keys that are written in axes: grids, exclusions, trials, baseline
base_arguments.py    the user's TrainingArguments and DeepSpeed file, checked against the axes
settings.py          SweepConfig: the checked configuration, as frozen data
config.py            load_config: all of the above together
validity.py          combinations that cannot run, as a table of rules with reasons
plan.py              SweepConfig -> trial specs, and records for what a rule forbids
technique_sets.py    configurations apart from their batch, and their trials at any batch
shipped.py           the configurations that are shipped with the program
schema.py            the JSON schema that editors complete configs with
prechecks/           mistakes that text and files can tell before the first trial
dialects/            files of other trainers as configurations of ours
tune_space/          the configurations that tune chooses from, where a file names no axes
"""
