"""What the tests on a GPU share: their marks, and BERT-large as a config file names it."""

from __future__ import annotations

import pytest

from jobs.node import nvml

BERT_LARGE = """\
model:
  task: sequence-classification
  architecture: bert
  config:
    hidden_size: 1024
    num_hidden_layers: 24
    num_attention_heads: 16
    intermediate_size: 4096
"""
"""The beginning of a config file."""
UUIDS = nvml.visible_uuids()
"""The GPUs, found through NVML: a CUDA context of this process would count in measurements."""


def gpu_marks(*, timeout_seconds: int, gpus: int = 1) -> list[pytest.MarkDecorator]:
    """The ``pytestmark`` of a file whose tests need this many GPUs."""
    return [
        pytest.mark.gpu,
        pytest.mark.timeout(timeout_seconds),
        pytest.mark.skipif(len(UUIDS) < gpus, reason=f"needs CUDA devices: {gpus}"),
    ]
