"""What a trial will take of a GPU, predicted without one: memory and time.

A training step is traced on tensors without data, and replayed through a model of the allocator.
Its kernels and the rates of a card give the time.
Read in this order:

prediction.py        what is predicted of a trial: figures, intervals, anatomy, the cards it fits
intervals.py         how far a measurement may lie from a replay
estimator.py         trials -> predictions; trials of one model share its traces
shared.py            which trials share a trace or a model, and what is computed once for many
model_group.py       the trials of one model: traced, replayed, predicted
unsupported.py       trials that are not predicted, and why
bounds.py            what is known of some of these trials all the same
margins.py           techniques whose traces are less exact: their wider intervals
libraries.py         how the traced libraries are imported
gpus.py              a GPU's constants: measured ones in gpus/*.yaml, data sheets in cards.yaml
cards.py             the cards on which a trial runs, and what they lack
kernel_memory.py     what CUDA kernels take for themselves: workspaces that no tensor shows
streams/             what a step allocates, and its replay through a model of the allocator
tracing/             a step traced on tensors without data
time/                the kernels of a step, and their seconds on a card
tune/                the fastest configurations of tune's space
zero.py              DeepSpeed's engine: its flat buffers and buckets
zero_reduction.py    how it averages the gradients of several ranks

Only tracing/ and zero.py import torch at the top of their files.
"""
