"""What CUDA does otherwise than a CPU.

cuda_semantics.py    a CPU trace made to do what CUDA does: autocast, dropout, softmax
cuda_operators.py    operators whose memory on CUDA differs from what tensors without data show
cuda_attention.py    which attention kernel CUDA picks, and the tensors that it makes
workspaces.py        the kernel workspaces of a traced operator
"""
