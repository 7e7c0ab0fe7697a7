"""The anatomy of a trial: where the memory and the time of its steps went.

profile.py            puts everything below together; the only entry point
step_profiler.py      trains the extra steps: some timed by phase (phase_timer.py), one profiled
trace.py              that profiled step as plain data (read by trace_reader.py)
memory/live_tensors   the tensors that exist between steps: weights, gradients, optimizer states
memory/timeline       names every byte of the step, at the peak and over time
memory/ledger         the steps from those bytes to the memory that NVML reported
memory/kinds          the kinds of memory, which predictions share
time/operations       the step's time by kind of operation
time/modules          the step's time by class of module
time/phases           the step's time by what the loop did
time/efficiency       floating-point operations and the MFU (rates: time/peak_flops)
rules_of_thumb.py     published rules, and whether the trial met them

Only profile, step_profiler, phase_timer, trace_reader and live_tensors use torch objects; the other
files are arithmetic on plain data. The result is plain data too: ``jobs.anatomy_record``.
"""
