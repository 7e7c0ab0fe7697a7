"""From a YAML file to a plan, in milliseconds and without a heavy import. Read in this order:

problems.py       what is wrong with a file: line, key, message, "did you mean"
document.py       safe YAML that remembers the line of every key
keys/             the file's keys, types and meanings: one declaration each
library_facts.py  what the installed libraries know: asked of a process once, remembered
choices/          the values of axes, and the user's own arguments
settings.py       SweepConfig: the checked configuration, as frozen data
config.py         load_config: all of the above together
validity.py       combinations that cannot run, as a table of rules with reasons
plan.py           SweepConfig -> trial specs, and records for what a rule forbids
technique_sets.py configurations apart from their batch, and their trials at any batch
shipped.py        the configurations that are shipped with the program
prechecks/        mistakes that text and files can tell before the first trial
dialects/         files of other trainers as configurations of ours
tune_space/       the configurations that tune chooses from, where a file names no axes
"""
