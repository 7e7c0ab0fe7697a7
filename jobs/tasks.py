"""What each task means to transformers and PEFT: names only, so that the driver can read them without torch."""

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
}
"""Task -> the transformers class that builds its model."""

PEFT_TASK_TYPES: Mapping[Task, str] = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
}
"""Task -> PEFT's ``task_type``, where it has one."""
