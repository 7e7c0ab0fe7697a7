"""Why the allocator keeps more than its replay: a step's allocations and addresses, from a GPU.

    python -m tests.gpu.fragmentation record --output $OUT/llama.json    # on a GPU, under 60 s
    python -m tests.gpu.fragmentation replay llama.json                  # anywhere

``record`` trains three steps of a 1.2 B Llama: vocabulary 128,256, 1,024 tokens, bf16 autocast,
fused AdamW, checkpointing. It writes each allocation, each free and each segment's address.
``replay`` runs these through the model of the allocator twice: with the addresses that the driver
gave, and with falling ones. Equal bytes in the first case, and others in the second, show that
addresses alone make the difference.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.prediction.allocator import Block, CachingAllocator
from orchestrator.units import MIB

STEPS = 3
MODEL = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128_256,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
_ACTIONS = ("alloc", "free_completed", "segment_alloc")


@dataclass(slots=True)
class GivenAddresses(CachingAllocator):
    """The allocator's model, with segments at recorded addresses, in order."""

    addresses: list[int] = field(default_factory=list)

    def _segment(self, size: int, small: bool) -> Block:
        block = CachingAllocator._segment(self, size, small)
        if self.addresses:
            block.address = self.addresses.pop(0)
        return block


def main(arguments: Sequence[str] | None = None) -> None:
    """Record on a GPU, or replay a record."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.fragmentation")
    subparsers = parser.add_subparsers(required=True, dest="action")
    record = subparsers.add_parser("record")
    record.add_argument("--micro-batch", type=int, default=32)
    record.add_argument("--tokens", type=int, default=1024)
    record.add_argument("--no-checkpointing", action="store_true")
    record.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    replay = subparsers.add_parser("replay")
    replay.add_argument("file", type=Path, metavar="FILE.json")
    options = parser.parse_args(arguments)
    if options.action == "record":
        recorded = recorded_training(
            options.micro_batch, options.tokens, checkpointing=not options.no_checkpointing
        )
        options.output.write_text(json.dumps(recorded), encoding="utf-8")
    else:
        recorded = json.loads(options.file.read_text(encoding="utf-8"))
    for line in findings(recorded):
        print(line)


def recorded_training(micro_batch: int, tokens: int, *, checkpointing: bool) -> dict[str, Any]:
    """Train a few steps; returns the peaks, and the allocator's events since the process began."""
    import torch
    import transformers

    torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**MODEL))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(STEPS):
        ids = torch.randint(100, 30_000, (micro_batch, tokens), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()
    torch.cuda.synchronize()
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
        "events": list(_events(torch.cuda.memory._snapshot())),
    }


def _events(snapshot: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Action, address and bytes of each event of the first device that has any."""
    traces = next(trace for trace in snapshot["device_traces"] if trace)
    for event in traces:
        if event["action"] in _ACTIONS:
            yield event["action"], event["addr"], event["size"]


def findings(recorded: Mapping[str, Any]) -> Iterator[str]:
    """What was measured, and what the model of the allocator makes of the same requests."""
    events = recorded["events"]
    yield f"torch {recorded['torch']}, transformers {recorded['transformers']}"
    yield f"allocated {recorded['peak_allocated'] / MIB:,.0f} MiB at the peak"
    yield f"reserved  {recorded['peak_reserved'] / MIB:,.0f} MiB at the peak"
    addresses = [address for action, address, _ in events if action == "segment_alloc"]
    given = replayed(events, GivenAddresses(addresses=addresses))
    yield f"replayed with the driver's addresses: {given / MIB:,.0f} MiB"
    falling = replayed(events, CachingAllocator())
    yield f"replayed with falling addresses:      {falling / MIB:,.0f} MiB"
    yield "segments over 256 MiB, in the order in which they were opened:"
    for action, address, size in events:
        if action == "segment_alloc" and size > 256 * MIB:
            yield f"  {address:#016x}  {size / MIB:>9,.0f} MiB"


def replayed(events: Sequence[Sequence[Any]], allocator: CachingAllocator) -> int:
    """Most bytes reserved for recorded requests: only sizes and order are taken from the record."""
    living: dict[int, Block | None] = {}
    for action, address, size in events:
        if action == "alloc":
            living[address] = allocator.allocate(size)
        elif action == "free_completed" and address in living:
            allocator.free(living.pop(address))
    return allocator.peak_reserved


if __name__ == "__main__":
    main()
