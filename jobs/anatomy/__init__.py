"""A trial taken apart after its counted steps: where the memory went, and where the time.

entry.py        what an anatomy consists of (plain data, it travels in the record)
kinds.py        what memory is held for: the words that predictions use too
observer.py     the pass: as few more steps of the same loop as tell, timed phase by phase, the last under the profiler
trace.py        that step as plain data: allocations, operators, kernels, phases
residents.py    what the live objects hold from step to step: weights, gradients, optimizer states, buffers
memory.py       allocations and residents -> what every byte was for at the peak, and over the step
ledger.py       from there to what NVML saw
operations.py   the step's time by kind of operation
modules.py      the step's time by class of module
phases.py       the step's time by what the loop did
efficiency.py   floating-point operations, and the share of the device's peak (peaks.py)
rules.py        the guides' rules of thumb, and whether they held
dissection.py   all of this together

Only observer, trace, residents and dissection need torch; the others are arithmetic on plain data.
"""
