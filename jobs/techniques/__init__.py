"""Every training technique as a row of data, one file per axis.

A technique is a ``Variant`` on an ``Axis``. To add a technique, add its row to the file of its
axis. To add an axis, or a file with rows of several axes, add its module to ``_MODULES``.

variant.py        what a technique is: ``Variant``, ``Family``, ``Axis``; the registry; ``merge``
axes/             the axes of every training, one file each
hooks.py          the functions that techniques call in a trial, by name
written_form.py   the text of a technique with parameters
sample_kind.py    which techniques change what one sample is
"""

import importlib

from jobs.techniques.axes.batch_sizes import BATCH_AXES
from jobs.techniques.variant import AXES, COLUMNS, INCOMPATIBLE, Axis, Family, Variant, merge

__all__ = ["AXES", "BATCH_AXES", "COLUMNS", "INCOMPATIBLE", "Axis", "Family", "Variant", "merge"]

_MODULES = """
jobs.techniques.axes.batch_sizes jobs.techniques.axes.batching jobs.techniques.axes.precision
jobs.techniques.axes.optimizer jobs.techniques.axes.activations jobs.techniques.axes.attention
jobs.techniques.axes.experts jobs.techniques.axes.offload jobs.techniques.axes.sharding
jobs.techniques.axes.kernels jobs.techniques.axes.loss jobs.finetuning.adapters
jobs.finetuning.frozen_base jobs.finetuning.vision.vision_axis jobs.finetuning.trained_weights
jobs.finetuning.qat jobs.techniques.axes.compile jobs.techniques.axes.allocator
jobs.techniques.axes.dataloader jobs.techniques.axes.loop jobs.finetuning.muon
jobs.finetuning.weighted_loss jobs.finetuning.trl.loop_techniques jobs.finetuning.user_code
"""
"""Modules that add axes, rows and hooks, in the order in which variants are merged."""

for _module in _MODULES.split():
    importlib.import_module(_module)
