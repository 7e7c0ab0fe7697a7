"""Libraries made to run on tensors without data.

fake_libraries.py    code paths that refuse tensors without data, replaced
fake_update.py       clipping and optimizers
fake_zero.py         an optimizer's step under DeepSpeed's engine
fake_trainer.py      the Trainer's noise, and its loss outside of the model
fake_triton.py       libraries of triton kernels, which do nothing: Liger, cut-cross-entropy
fake_trl.py          TRL's own Trainers, as they compute with triton on CUDA
fake_flash.py        the package flash-attn, by PyTorch's own kernel of the same memory
fake_host.py         activations that wait on the host, moved by PyTorch's and TRL's own code
fake_ranks.py        PyTorch's engines of several ranks, of which this process is the first
fake_quantized.py    weights that bitsandbytes packs in 4 or 8 bits, and their products
"""
