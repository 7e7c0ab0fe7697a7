"""Which trial runs next: ask/tell searches without Ray, GPU or clock.

They can be replayed on recorded tables (``python -m tests.benchmarks.replay``).

base.py              the interface, and the grid: every planned trial, in order
model/               the performance model that the searches share
registry.py          the searches that a sweep can name, and how one is built
best/                the fastest in each budget, or at every memory, from few trials
batch_size/          the largest micro-batch, the fastest, the saturation, and accumulation
follow_ups.py        when a search has ended: a few more trials about its result
follow_up_plan.py    which ones, and what each of them runs
several.py           several searches as one: in turn, or one per GPU model of a cluster
"""
