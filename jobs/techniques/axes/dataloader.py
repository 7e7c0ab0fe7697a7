"""Data-loader axis: worker processes, pinned memory, prefetching."""

from typing import Any

from jobs.techniques.base import Axis, Variant


def _loader(doc: str, **arguments: Any) -> Variant:
    return Variant(doc=doc, training_arguments={f"dataloader_{k}": v for k, v in arguments.items()})


DATALOADER = Axis(
    name="dataloader",
    doc="how samples are loaded",
    default="main_process",
    variants={
        "main_process": _loader("loaded in the training process, pinned memory", num_workers=0),
        "unpinned": _loader(
            "loaded in the training process, pageable memory", num_workers=0, pin_memory=False
        ),
        "workers_1": _loader("one worker process", num_workers=1),
        "workers_2": _loader("two worker processes", num_workers=2),
        "workers_4": _loader("four worker processes", num_workers=4),
        "workers_2_prefetch_4": _loader(
            "two persistent workers, four batches prefetched each",
            num_workers=2,
            prefetch_factor=4,
            persistent_workers=True,
        ),
    },
)
