"""What benchmarks share that train as tests/gpu/bare.py does. Imports little: peers are timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.spec import TrialSpec

ROOT = Path(__file__).parents[2]
BARE = ROOT / "tests" / "gpu"
"""The folder of bare.py."""
BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
BERT_TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}


def plain_arguments(spec: TrialSpec) -> dict[str, Any]:
    """The trial's training arguments without a TF32 flag that is off.

    The flag is an error where there is no GPU, and the guides do not set what is off anyway.
    """
    arguments = dict(spec.settings.training_arguments)
    if not arguments.get("tf32"):
        arguments.pop("tf32", None)
    return arguments
