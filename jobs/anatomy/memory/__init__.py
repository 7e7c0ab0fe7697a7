"""Where the memory of a step went.

live_tensors  the tensors that exist between steps: weights, gradients, optimizer states
timeline      names every byte of the step, at the peak and over time
ledger        the steps from those bytes to the memory that NVML reported
kinds         the kinds of memory, which predictions share
"""
