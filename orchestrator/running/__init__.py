"""From a search to records: a run folder, Ray Tune and progress.

sweep_run.py              a whole sweep, from its configuration to every record
tuning.py                 tune carried out: a space instead of a plan
batch_size_tuning.py      batch-size searches carried out on each GPU model
lifecycle.py              what the two have in common
earlier_records.py        records of the folder: kept, renamed or moved aside
options.py                the command line's options that they have in common
close_reason.py           why a session starts nothing more
session.py                search, time budget, records and observers brought together; no Ray
observers.py              the interface of everything that watches a session:
  progress.py               lines in the terminal
  event_log.py              log.jsonl, a line per event
  prometheus.py             metrics
  loggers/                  TensorBoard, MLflow, Weights & Biases
follow.py                 a sweep's progress in another terminal, from its folder alone
background_prediction.py  memory of the trials, predicted beside a sweep
nodes.py                  what a cluster has, and what a trial reserves of it
ray_address.py            where the Ray cluster is
orphans.py                ends what a killed driver leaves behind
gpu_screening.py          unfit GPUs found before a sweep
cluster/                  Ray: one slot per GPU under Tune
"""
