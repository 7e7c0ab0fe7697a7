"""Runs the trials of a search, and writes their records to a run folder.

early_start.py            how a measuring verb starts, and what begins before Ray
options.py                the options of the measuring verbs
sweep_run.py              a whole sweep, from its configuration to every record
tune_run.py               runs tune: a sweep over a space instead of a plan
batch_size_run.py         runs batch-size searches on each GPU model
measurement.py            a run on one cluster, from earlier records to its end
session.py                combines search, time budget, records and observers; without Ray
close_reason.py           why a session starts no further trial
earlier_records.py        records of earlier sweeps: kept, renamed or moved aside
run_lock.py               the lock of a run folder during a run
observers/                progress in the terminal, log.jsonl, Prometheus, loggers
watch.py                  a sweep's progress in another terminal, read from its folder
background_prediction.py  predicts the memory of trials and of whole epochs while a sweep runs
nodes.py                  the nodes of a cluster, and what a trial reserves on them
gpu_screening.py          finds slow GPUs before a sweep
examination.py            the doctor's checks of a machine or a cluster
ray_address.py            where the Ray cluster is
guard.py                  a process that ends what a killed driver leaves behind
cluster/                  Ray: one slot per GPU under Tune
"""
