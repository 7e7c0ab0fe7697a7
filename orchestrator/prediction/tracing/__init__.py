"""A training step traced on tensors without data: every module here imports torch.

fake_step.py         a trial's model, data and optimizer on tensors without data
fake_update.py       its clipping and optimizer
deep_step.py         the same step, traced with few of the layers that are equal
cpu_arguments.py     its TrainingArguments as a machine without a GPU accepts them
batches.py           the shapes of its batches: synthetic samples, or a data file's rows
row_order.py         the order in which an epoch and a trial have rows of unequal length
usual_step.py        the kernels of a usual step of such an epoch
positions.py         sequences beyond a model's table of positions
fake_libraries.py    the libraries' code paths that refuse tensors without data, replaced
fake_liger.py        Liger's own code, with kernels that do nothing
fake_trl.py          TRL's own Trainers, as they compute with triton on CUDA
trl_batches.py       the batches of rows and pairs that TRL prepares
fake_flash.py        the package flash-attn, by PyTorch's own kernel of the same memory
fake_ranks.py        PyTorch's engines of several ranks, of which this process is the first
fake_quantized.py    weights that bitsandbytes packs in 4 bits, and their products
allocation_trace.py  every allocation of a traced step, and its kind
recording.py         those since the last stream
operators.py         what a traced operator computes and moves
compiled_block.py    what a compiler saves of the block that a model repeats
workspaces.py        the kernel workspaces of a traced operator
cuda_operators.py    operators whose memory on CUDA differs from what tensors without data show
known_values.py      the values of a batch's integers and conditions, where a step needs them
known_results.py     operators that ran before, whose results are made again
cuda_semantics.py    a CPU trace made to do what CUDA does: autocast, dropout, softmax
cuda_attention.py    which attention kernel CUDA picks, and the tensors that it makes
"""
