"""Where the trackers' figures come from. None of them waits for the device or allocates there.

cuda_events    CUDA events with the time at which the host launched them
dispatch_mode  every operator as PyTorch dispatches it
layer_stacks   points between the stacks of a model's layers, in both passes
micro_batches  the samples and tokens of every micro-batch
series         readings with their times; device scalars, copied to the host asynchronously
"""
