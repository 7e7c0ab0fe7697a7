"""The interval of each predicted figure: by how much a measurement may differ from the replay.

The tensors of a step follow from the trace, so their interval is narrow. The memory that the
allocator reserves does not. Of several free blocks of one size, the allocator splits the one at the
lowest address, and the driver chooses the addresses. If the step later needs the split block as a
whole, the allocator opens another segment, as large as the largest request: 16 GB of logits, for a
vocabulary of 128,256. So the reserved memory of two equal runs can differ by that block.

The constants are fitted to recorded residuals, not chosen:
``python -m tests.benchmarks.tables predictions tests/data/predictions/recorded.parquet
docs/results`` prints the fit.
"""

from dataclasses import dataclass, replace

from jobs.spec import TrialSpec
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.prediction import Elsewhere, Figure, Prediction, figure
from orchestrator.prediction.streams.replay import ReplayedPeaks
from orchestrator.units import MIB

UNTRACED = 0.01
"""Share by which allocations that are not traced may change a figure.

Allocated peaks recorded without DeepSpeed differ by at most 0.65 % from their replays.
"""
OUTSIDE_SLACK = 20 * MIB
"""Memory of context and libraries beyond the GPU's constants. The largest recorded is 16 MiB."""
REGROUPED = 0.10
"""Of a step's largest block: how much more or less than a replay the allocator reserves, at other
addresses. 95 % of the recorded configurations are within it, each model with equal weight."""
_PAGE_BYTES = 2 * MIB
_EVALUATION = (
    "evaluation: it takes more memory than the training; a smaller per_device_eval_batch_size "
    "needs less"
)
_FRAGMENTED = (
    "unequal rows: more memory than a step's largest tensor is reserved for some lengths and does "
    "not serve others; allocator: expandable_segments may save it"
)
_EACH = "several GPUs: the memory is that of each"
_ENCODER_DECODER = (
    "encoder-decoders: models took 13 to 28 % more memory with transformers 5.17 than a trace with "
    "5.23 says; predict with the version that trains"
)
_NEEDS_AMPERE = (
    "16 GB: on a T4 or V100, attention keeps all its scores, because their fused kernel takes "
    "neither grouped queries nor bf16; --gpu t4 predicts how much that is"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """A trial's replay, and what is added to it. In bytes."""

    peaks: ReplayedPeaks
    """Those of an epoch, if its rows are of unequal length."""
    orders: tuple[ReplayedPeaks, ...] = ()
    """Those of epochs with the same rows in other orders."""
    trial: ReplayedPeaks | None = None
    """Those of a trial's own steps; None if all steps are equal."""
    outside: int
    """Context and libraries."""
    paged: tuple[int, ...] = ()
    """Each state in managed memory."""
    needs_ampere: bool = False
    """Whether a GPU below capability 8.0 would take another attention kernel, and more memory."""
    under_deepspeed: bool = False
    is_shared: bool = False
    """Whether several GPUs share the training. Their engines change between versions of PyTorch
    and accelerate, so the intervals are as wide as under DeepSpeed."""
    is_encoder_decoder: bool = False
    """Whether it is a model whose memory depends much on the version of transformers."""


def predicted(spec: TrialSpec, replayed: Replayed, gpu: Gpu) -> Prediction:
    allocated = allocated_interval(replayed)
    reserved = reserved_interval(replayed)
    device = _device_interval(reserved, replayed)
    trial = None
    if replayed.trial is not None:
        of_trial = replace(replayed, peaks=replayed.trial, orders=())
        trial = _device_interval(reserved_interval(of_trial), replayed)
    other = elsewhere(allocated, reserved, device, replayed.peaks)
    notes = {
        _EVALUATION: replayed.peaks.is_of_evaluation,
        _NEEDS_AMPERE: replayed.needs_ampere,
        _FRAGMENTED: trial is not None
        and reserved.bytes - allocated.bytes > replayed.peaks.largest_block,
        _EACH: replayed.is_shared,
        _ENCODER_DECODER: replayed.is_encoder_decoder,
    }
    is_measured = gpu.is_measured(deepspeed=replayed.under_deepspeed)
    if not is_measured:
        # The GPU's own constants are incomplete, so it is like any other card.
        device = Figure(bytes=device.bytes, low=min(device.low, other.least), high=other.high)
    return Prediction(
        trial_id=spec.trial_id,
        choices=spec.choices,
        allocated=allocated,
        reserved=reserved,
        device=device,
        trial_device=trial,
        elsewhere=other,
        measured_bytes=gpu.total_bytes if is_measured else None,
        largest_block=replayed.peaks.largest_block,
        anatomy=replayed.peaks.at_peak,
        needs_ampere=replayed.needs_ampere,
        notes=tuple(note for note, applies in notes.items() if applies),
    )


def allocated_interval(replayed: Replayed) -> Figure:
    """Bytes held by tensors at their peak."""
    peak = replayed.peaks.allocated
    orders = [peak, *(own.allocated for own in replayed.orders)]
    least, most = min(orders), max(orders)
    if replayed.under_deepspeed or replayed.is_shared:
        return figure(peak, below=0.03, above=0.03)  # the largest recorded difference is 2.4 %
    found = figure(peak, below=UNTRACED, above=UNTRACED, slack=most - peak)
    return replace(found, low=int((1 - UNTRACED) * least))


def reserved_interval(replayed: Replayed) -> Figure:
    """Bytes that the allocator keeps, for all addresses that the driver may choose.

    The interval is that of the replays of both orders of segments, extended by a share of the
    largest block on each side, and never below the bytes of the tensors. At rare addresses it takes
    the whole block.
    """
    peaks = replayed.peaks
    if replayed.under_deepspeed or replayed.is_shared:
        # Its engine makes copies while it sets up its partitions, and their memory stays reserved.
        # The largest recorded excess is 4.9 %.
        return figure(peaks.reserved, below=0.05, above=0.1, slack=OUTSIDE_SLACK)
    low, high = sorted((peaks.reserved, peaks.reserved_upwards))
    # Where the two orders of segments differ much, neither is more likely.
    likely = (low + high) // 2 if high - low > 0.02 * high else peaks.reserved
    for order in replayed.orders:
        low = min(low, order.reserved, order.reserved_upwards)
        high = max(high, order.reserved, order.reserved_upwards)
    tensors = min([peaks.allocated, *(own.allocated for own in replayed.orders)])
    regrouped = int(REGROUPED * peaks.largest_block)
    least = max(low - regrouped, tensors)
    return Figure(
        bytes=likely,
        low=int((1 - UNTRACED) * least),
        high=int((1 + UNTRACED) * (high + regrouped)),
        rarely=int((1 + UNTRACED) * (peaks.largest_block - regrouped)),
    )


def _device_interval(reserved: Figure, replayed: Replayed) -> Figure:
    """What NVML would see: the allocator's memory, context and libraries, and managed memory."""
    # Managed memory comes in pages. How densely small states share them is up to the driver. At
    # worst every state begins a page of its own.
    least_paged = sum(replayed.paged)
    pages = [-(-nbytes // _PAGE_BYTES) for nbytes in replayed.paged]
    most_paged = sum(pages) * _PAGE_BYTES
    return Figure(
        bytes=reserved.bytes + replayed.outside + (least_paged + most_paged) // 2,
        low=reserved.low + replayed.outside,
        high=reserved.high + replayed.outside + most_paged + OUTSIDE_SLACK,
        rarely=reserved.rarely,
    )


LARGEST_CONTEXT_BYTES = 1_343 * MIB
"""Context and kernels of a V100, the largest published: the Hugging Face guide's table, 2022."""
SMALLEST_CONTEXT_BYTES = 100 * MIB
"""A bare context with lazily loaded kernels is at least this large."""


def elsewhere(
    allocated: Figure, reserved: Figure, device: Figure, peaks: ReplayedPeaks
) -> Elsewhere:
    """The needs on a card of another model, from the figures on the measured one.

    Another attention kernel may need no workspaces, or twice those of the measured kernel.
    """
    # Context and libraries: what the device holds beyond the allocator.
    outside = device.high - reserved.high
    # Other libraries beside the context (DeepSpeed, managed memory) stay as measured.
    context = max(outside, LARGEST_CONTEXT_BYTES)
    if outside > LARGEST_CONTEXT_BYTES:
        context = outside + LARGEST_CONTEXT_BYTES // 2
    # A kernel without workspaces, and the smallest context of any card.
    least = allocated.low - peaks.kernel_workspaces + SMALLEST_CONTEXT_BYTES
    return Elsewhere(least=least, high=reserved.most + peaks.kernel_workspaces + context)
