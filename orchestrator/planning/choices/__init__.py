"""What a file may choose on each axis, and what it fixes for all trials. Read in this order:

technique_parameters.py  techniques with parameters of the user's own
arguments.py             names that the installed transformers knows, and which the runner decides
axes.py                  the keys that are written in axes: grids, exclusions, trials, baseline
base_arguments.py        the user's TrainingArguments and DeepSpeed file, checked against the axes
"""
