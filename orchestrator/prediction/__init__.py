"""What a trial will take of a GPU, with no GPU: a traced training step, replayed through a model of the allocator.

prediction.py      what is predicted of a trial: figures, intervals, anatomy, which cards it fits
unknowns.py        trials of which nothing is said, and why
gpus.py            a GPU's own constants: calibration data in gpus/*.yaml
allocator.py       PyTorch's caching allocator, as far as byte counts go
kernels.py         what CUDA kernels take for themselves: workspaces that no tensor shows
stream.py          allocations and frees in order, as functions of the micro-batch
replay.py          streams put together to training steps and run through the allocator
cuda_semantics.py  a CPU trace made to do what CUDA does: autocast, dropout, softmax, attention kernels
recording.py       every allocation of a traced step, and what it is for
rehearsal.py       a trial's model, data and optimizer, built as the job builds them, on tensors without data
zero.py            DeepSpeed's engine: its flat buffers and buckets
libraries.py       how what these need is imported
estimator.py       trials -> predictions, traces shared between trials that differ only in batch or optimizer

Only cuda_semantics, recording, rehearsal and zero need torch; estimator and libraries import it inside functions.
"""
