"""The axes of every training. A file has the rows of one axis, and the hooks that they name.

batch_sizes.py   micro_batch, accumulation, sequence_length
batching.py      how rows of unequal length become batches
precision.py     number formats of weights and arithmetic
optimizer.py     how the weights are updated
activations.py   activations kept, recomputed, or moved to the host
attention.py     which kernel computes attention
experts.py       which kernel computes a mixture of experts
offload.py       DeepSpeed's ZeRO stages, on the GPU, the host or a disk
sharding.py      DDP, FSDP2 or ZeRO over the GPUs of a trial
kernels.py       fused kernels for a model's layers
loss.py          a loss without all logits in memory
compile.py       torch.compile, of the whole model or of its repeated block
allocator.py     settings of PyTorch's allocator on the GPU
dataloader.py    worker processes and pinned memory
loop.py          the Trainer, or a plain loop
"""
