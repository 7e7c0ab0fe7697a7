"""Where the memory of a step went: every byte of it by name, up to what NVML reported.

ledger.py         the tensors at the peak, and all other memory up to what NVML reported
live_tensors.py   the tensors that exist between steps
timeline.py       names every byte of a step's allocations, at the peak and over time
"""
