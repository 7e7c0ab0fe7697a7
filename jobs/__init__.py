"""Everything that runs on the GPU node for one trial; it knows no sweep and no Ray.

Read in this order:

spec.py, record.py      the two messages: what to run, and what came of it (plain data)
techniques/             one file an axis: every training technique as a row of data
slot.py                 one GPU's long-lived parent: preload once, fork a clean child per trial, enforce the deadline
waiting.py              parents that preload before there is a slot, while Ray starts
trial.py                what the child does: build, train, read back, and name the outcome
memory_cap.py           a smaller GPU, played by a larger one
models.py, data.py      the model and the dataset a trial trains
loops/                  the training loops that can be measured (Trainer, Accelerate)
trackers/               one file an instrument: allocator, NVML, host, steps
inspection.py           the effective configuration, read back from live objects
environment.py          what machine and which versions this is
"""
