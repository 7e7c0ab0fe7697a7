"""From a plan to records: the run folder, Ray Tune, progress.

store.py      the run folder: one atomic file per finished trial, one driver at a time
cluster.py    Ray: what the cluster has, and one slot per GPU under Tune (the only file that imports ray)
session.py    one sweep: search, budget, store and progress brought together; knows no Ray
progress.py   what is printed while it runs
"""
