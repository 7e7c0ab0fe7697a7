"""What synthetic data and the user's own data share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

IGNORED = -100
"""The label that the loss leaves out."""

Collator = Callable[[list[Any]], dict[str, torch.Tensor]]
"""Makes a batch of a list of rows."""
