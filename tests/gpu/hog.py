"""Another process on a GPU: it holds memory until its input closes.

    python -m tests.gpu.hog GIB [--busy]

``--busy`` keeps the GPU busy, too.
"""

import select
import sys

import torch


def main() -> None:
    """Say "ready" when the memory is taken."""
    held = torch.empty(int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    print("ready", flush=True)
    pause = 0.0 if "--busy" in sys.argv else None
    while not select.select([sys.stdin], [], [], pause)[0]:
        left = torch.mm(left, left).clamp(-1, 1)
        torch.cuda.synchronize()
    del held


if __name__ == "__main__":
    main()
