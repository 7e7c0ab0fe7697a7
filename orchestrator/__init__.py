"""Plan, schedule, collect, decide and report: the driver, which needs no GPU.

sweep.py, report.py      the verbs: ``python -m orchestrator.<verb>``, thin as a door
planning/                YAML -> validated config -> trial specs, with the rules that rule combinations out
search/                  ask/tell over planned trials: pure, replayable, no Ray
running/                 Ray Tune, the run folder, progress
results/                 records -> Arrow tables -> frontier -> ranking -> pages
"""
