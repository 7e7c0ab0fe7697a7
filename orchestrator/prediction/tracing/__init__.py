"""A training step traced on tensors without data: every module here imports torch.

fake_step.py         a trial's model, data and optimizer on tensors without data
deep_step.py         the same step, traced with few of the layers that are equal
cpu_arguments.py     its TrainingArguments as a machine without a GPU accepts them
allocation_trace.py  every allocation of a traced step, and its kind
recording.py         those since the last stream
operators.py         what a traced operator computes and moves
compiled_block.py    what a compiler saves of the block that a model repeats
known_values.py      the values of a batch's integers and conditions, where a step needs them
known_results.py     operators that ran before, whose results are made again
rows/                its batches, and their order
fakes/               libraries made to run on tensors without data
cuda/                what CUDA does otherwise than a CPU
"""
