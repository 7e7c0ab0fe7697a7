"""Which trial next: ask/tell, pure, replayable against a recorded table. No Ray, no GPU, no clock.

base.py            the interface
grid.py            every planned trial, in order
frontier.py        what could be on the memory/speed frontier; the rest skipped with the reason
optuna.py          what Optuna's samplers propose
choice.py          which open configuration the frontier search measures next
audit.py           what the frontier search checks of itself
configurations.py  a plan's trials with their repeats, on curves along the micro-batch
prediction.py      memory and speed of a configuration, learned from others
correction.py      predicted memory, corrected by what is measured
alike.py           how alike configurations and their curves are
surface.py         one cost's physical law, its unknowns learned
batch_size.py      the largest micro-batch, the fastest, the plateau, and accumulation; it makes its trials as it goes
accumulation.py    the next way to an effective batch
scaling.py         how memory and speed scale with the micro-batch, to choose its next size
follow_ups.py      when a search has ended: a few more trials about its result
together.py        several searches side by side as one
per_model.py       one search for each GPU model of a cluster
"""
