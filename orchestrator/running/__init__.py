"""Runs the trials of a search, and writes their records to a run folder.

sweep_run.py              a whole sweep, from its configuration to every record
planned_sweep.py          the plan of a sweep and its searches, made while Ray starts
tune_run.py               runs tune: a sweep over a space instead of a plan
batch_size_run.py         runs batch-size searches on each GPU model
reports.py              the steps that sweeps and batch-size searches share
earlier_records.py        records of earlier sweeps: kept, renamed or moved aside
options.py                the command-line options that these runs share
close_reason.py           why a session starts no further trial
session.py                combines search, time budget, records and observers; without Ray
observers/                progress in the terminal, log.jsonl, Prometheus, loggers
run_lock.py               the lock of a run folder during a run
watch.py                  a sweep's progress in another terminal, read from its folder
background_prediction.py  predicts the trials' memory while a sweep runs
nodes.py                  the nodes of a cluster, and what a trial reserves on them
ray_address.py            where the Ray cluster is
guard.py                  a process that ends what a killed driver leaves behind
gpu_screening.py          finds unfit GPUs before a sweep
cluster/                  Ray: one slot per GPU under Tune
"""
