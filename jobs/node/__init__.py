"""This machine: what it is, whether it is fit, and how its processes are started.

environment        GPU, driver and package versions: what makes rows comparable
nvml               what NVIDIA's management library says of the visible GPUs
gpu_fitness        whether a GPU answers, computes, and belongs to us alone
gpu_sharing        flags of a trial that did not have its GPU to itself
calibration        a GPU's rates under load
checks/            the doctor's checks of a machine
memory_cap         a smaller GPU, simulated by capping PyTorch's allocator
process_variables  environment variables that a measuring process needs
parent_death       what the kernel does with a process when its parent ends
probe_process      a process with a time limit, whose output is read
bytecode           keeps Python's bytecode where Python would keep none
"""
