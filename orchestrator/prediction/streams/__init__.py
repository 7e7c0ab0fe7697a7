"""What a step allocates and frees, in order, and what an allocator holds when it runs.

affine_stream.py     allocations and frees in order, as functions of the micro-batch
length_streams.py    streams of batches of unequal length, from traces at a few lengths
deep_stream.py       streams of models with many equal layers, from traces of a few layers
sized_stream.py      the bytes of a stream's allocations on a GPU
caching_allocator.py a model of PyTorch's caching allocator, for byte counts only
replay.py            streams put together to training steps and run through the allocator
"""
