"""What a trial will take of a GPU, predicted without one.

A training step is traced on tensors without data, and replayed through a model of the allocator.
Read in this order:

prediction.py        what is predicted of a trial: figures, intervals, anatomy, the cards it fits
estimator.py         trials -> predictions; trials of one model share its traces
unsupported.py       trials that are not predicted, and why
libraries.py         how the traced libraries are imported
gpus.py              a GPU's constants: calibration data in gpus/*.yaml
allocator.py         PyTorch's caching allocator, as far as byte counts go
kernels.py           what CUDA kernels take for themselves: workspaces that no tensor shows
affine_stream.py     allocations and frees in order, as functions of the micro-batch
replay.py            streams put together to training steps and run through the allocator
fake_step.py         a trial's model, data and optimizer on tensors without data
fake_libraries.py    the libraries' code paths that refuse tensors without data, replaced
allocation_trace.py  every allocation of a traced step, and its kind
workspaces.py        the kernel workspaces of a traced operator
cuda_operators.py    operators whose memory on CUDA differs from what tensors without data show
cuda_semantics.py    a CPU trace made to do what CUDA does: autocast, dropout, softmax
cuda_attention.py    which attention kernel CUDA picks, and the tensors that it makes
zero.py              DeepSpeed's engine: its flat buffers and buckets

The modules up to replay.py import torch inside functions, or not at all.
"""
