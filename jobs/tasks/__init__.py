"""What each task means to transformers: names only, so that the driver needs no torch for them."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.spec import Task

AUTO_CLASSES: Mapping[Task, str] = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "image-text-to-text": "AutoModelForImageTextToText",
}
"""Task -> the transformers class that builds its model."""
