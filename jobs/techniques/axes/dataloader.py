"""Data-loader axis: worker processes, pinned memory and prefetching."""

from typing import Any

from jobs.techniques.variant import Axis, Variant, add


def _loader(doc: str, **options: Any) -> Variant:
    """``options`` are ``TrainingArguments`` without their prefix ``dataloader_``."""
    arguments = {f"dataloader_{name}": value for name, value in options.items()}
    return Variant(doc=doc, training_arguments=arguments)


DATALOADER = Axis(
    name="dataloader",
    doc="How samples are loaded",
    default="main_process",
    variants={
        "main_process": _loader("Loaded by the training process into pinned memory", num_workers=0),
        "unpinned": _loader(
            "Loaded by the training process into pageable memory", num_workers=0, pin_memory=False
        ),
        "workers_1": _loader("Loaded ahead by one worker process", num_workers=1),
        "workers_2": _loader("Loaded ahead by two worker processes", num_workers=2),
        "workers_4": _loader("Loaded ahead by four worker processes", num_workers=4),
        "workers_2_prefetch_4": _loader(
            "Loaded by two persistent worker processes, each up to four batches ahead",
            num_workers=2,
            prefetch_factor=4,
            persistent_workers=True,
        ),
    },
)
add(DATALOADER)
