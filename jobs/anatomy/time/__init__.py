"""Where the time of a step went.

operations  by kind of operation, and the longest kernels
modules     by class of module
phases      by what the loop did
efficiency  floating-point operations, the peak rates of GPUs, and the MFU
"""
