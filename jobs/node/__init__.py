"""This machine: what it is, whether it is fit, and how its processes are started.

environment        GPU, driver and package versions: what makes rows comparable
nvml               what NVIDIA's management library says of the visible GPUs
gpu_fitness        whether a GPU answers, computes, and belongs to us alone
calibration        a GPU's rates under load
collectives        how fast they exchange tensors
process_group      how the processes of a trial find each other
checks/            the doctor's checks of a machine
memory_cap         a smaller GPU, simulated by capping PyTorch's allocator
processes          how processes that measure are started, watched and ended
"""
