"""The anatomy of a trial: where the memory and the time of its steps went.

profile         puts everything below together; the only entry point
step_profiler   trains the extra steps: some timed by phase, one profiled
trace           that profiled step as plain data (read by trace_reader)
memory/         the step's memory: at its peak, over time, and up to what NVML reported
time/           the step's time by operation, by module and by phase, and the MFU

Only profile, step_profiler, trace_reader and live_tensors use torch objects; the other files are
arithmetic on plain data. The result is plain data too: ``jobs.anatomy_record``.
"""
