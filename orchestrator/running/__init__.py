"""From a plan to records: the run folder, Ray Tune, progress.

store.py      the run folder: one atomic file per finished trial, one driver at a time
nodes.py      what a cluster has, and which of its nodes are alike
cluster/      Ray: a survey of the cluster, and one slot per GPU under Tune
reach.py      where a cluster is to be: whether anything answers there, or one is to be started here
fitness.py    the cluster less its unfit GPUs
metrics.py    figures for Prometheus (beside the two above and tracking, no file here imports ray)
events.py     who is told what becomes of trials; the sweep's log, one JSON object a line
session.py    one sweep: search, budget, store and progress brought together; knows no Ray
foretelling.py what trials will need of memory, predicted beside a sweep
measuring.py  from a search to its records: what every verb that measures has in common
tuning.py     batch-size searches carried out, one a technique set
command.py    the options of those verbs, and the run folder held while they run
progress.py   what is printed while it runs
watching.py   the same from another terminal, read from the folder alone
publication.py a run folder's copy at a URI, kept up while it runs
tracking.py   experiment trackers told of every trial, through Ray's logger callbacks
"""
