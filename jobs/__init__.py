"""Everything that runs on a GPU node for one trial. Nothing here knows of sweeps or of Ray.

Imports run one way, from the first of these folders to the last, and then to the files below:

isolation/          each trial in a process of its own, forked from a prepared parent
trial/              one trial from its spec to its record
anatomy/            where memory and time of a step went
loops/              the training loops that can be measured
trackers/           the instruments that measure every trial
node/               what a node has, and whether its GPUs are fit
finetuning/         what only some trainings need, reached through the registry of techniques
techniques/         the axes, and each technique as a row of data
library_facts/      what the installed libraries know, collected once for the driver
spec/               what a trial is asked to do

record.py           what came of one trial
rank_records.py     the same of a trial of several ranks
anatomy_record.py   its anatomy as plain data
gradient_check.py   whether gradients are those of the same weights in fp32
errors.py           what an error means: exceptions, signals and exit codes as outcomes
flags.py            warnings about a row
infrastructure.py   failures of the machine, which say nothing about a trial
steady_state.py     when a training runs steadily, and when its mean step is known well enough
ragged_steps.py     which steps stand for an epoch of rows of unequal length
tasks.py            what each task means to transformers
permissions.py      what a trial may name, wherever its spec comes from
data_files.py       the files of a dataset on disk
data_lines.py       the first bad line of such a file
self_process.py     runs a module of this program as a process of its own

To follow one trial, read ``isolation.slot``, ``isolation.forkserver``, ``isolation.child_runner``,
``isolation.child_handle``, ``isolation.child_main``, ``trial.run``, ``trial.assembly`` and
``loops.trainer``, in this order. ``techniques.axes.loop`` names the loop that ``trial.run`` calls.
"""
