"""Everything that runs on the GPU node for one trial; it knows no sweep and no Ray.

Read in this order:

spec.py, record.py      the two messages: what to run, and what came of it (plain data)
techniques/             one file an axis: every training technique as a row of data
slot.py                 one GPU and its long-lived parent, which it replaces should that end
parent.py               preloads once, forks a clean child per trial, enforces the deadline
child.py, inside.py     a trial's own process: as the parent handles it, and what it does itself
waiting.py              parents that preload before there is a slot, while Ray starts
trial.py                what a trial is: build, train, read back, and name the outcome
company.py              who else was on the GPU
memory_cap.py           a smaller GPU, played by a larger one
models.py, data.py      the model and the dataset a trial trains
loops/                  the training loops that can be measured (Trainer, Accelerate)
trackers/               one file an instrument: allocator, NVML, host, steps
inspection.py           the effective configuration, read back from live objects
environment.py          what machine and which versions this is
"""
