"""Records every allocation and free of a traced step in order, with the kind of its memory."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from orchestrator.prediction.streams.affine_stream import (
    EVEN_ROUTING,
    FLASH,
    NEEDS_AMPERE,
    Free,
    Stream,
)
from orchestrator.prediction.time.operations import Operation
from orchestrator.prediction.tracing.cuda.cuda_attention import has_no_older_kernel
from orchestrator.prediction.tracing.cuda.cuda_operators import run_as_cuda
from orchestrator.prediction.tracing.cuda.workspaces import libraries, workspaces
from orchestrator.prediction.tracing.known_results import KnownResults
from orchestrator.prediction.tracing.known_values import (
    ConditionsOfAll,
    follow,
    know,
    known_results,
    number_of,
    tensors,
    true_values,
)
from orchestrator.prediction.tracing.operators import operation
from orchestrator.prediction.tracing.recording import Recording
from orchestrator.prediction.tracing.rows.batches import BatchShapes

_aten = torch.ops.aten
_BY_MASK = {_aten.index.Tensor, _aten.masked_scatter_backward.default}
_KERNELS = {
    _aten.convolution.default: "cudnn",
    _aten._scaled_dot_product_cudnn_attention.default: "cudnn",
    _aten._scaled_dot_product_flash_attention.default: "flash",
    _aten._scaled_dot_product_efficient_attention.default: "efficient",
    _aten._flash_attention_forward.default: FLASH,
    torch.ops.torch_attn._varlen_attn.default: FLASH,
    _aten._softmax.default: "softmax",
}
"""Operator -> the kernel or library that it uses, which a stream records."""
_KINDS_OF_OUTPUTS = {
    "fsdp::split_with_sizes_copy": "gathered parameters",
    "fsdp::chunk_cat": "communication buffers",
}
"""Operator of FSDP2 -> the kind of what it writes to."""
_resize = torch.UntypedStorage.resize_
_NEW_ATTENTION = {
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention.default,
}


class AllocationRecorder(TorchDispatchMode):
    """Records each operator of a step on tensors without data, and the life of their storages.

    A value read from such a tensor is 1, and a condition is false, but for one, which is true
    unless ``is_padded``: that all positions of a batch hold tokens.
    """

    def __init__(self, results: KnownResults | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._phase = ""
        self._results = results or KnownResults()
        self._parameters: set[int] = set()
        """Storages of the model's parameters."""
        self._storages: dict[int, tuple[Recording, int]] = {}
        """Living storage -> the recording and the number of its allocation."""
        self._references: dict[int, Any] = {}
        self._of_all = ConditionsOfAll()
        self._recording = Recording()
        self.experts = 0
        """Experts of a layer, over which tokens are spread; 0 if the model has none."""
        self.vocabulary = 0
        """Size of the last dimension of logits; 0 if the model has none over its vocabulary."""
        self.is_padded = False
        """Whether the traced batches need a mask: for padding, or for rows in one sequence."""
        self.follows_values = False
        """Whether values of the batch decide what a step computes."""
        self.real_tokens = 0
        """Positions of a batch that its mask does not leave out; 0: it has no mask."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # what keeps Dynamo away from each call takes longer than many calls

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A context of a phase, whose kind its allocations get that still live at the end."""
        # Phases may nest: a checkpoint recomputes within the backward pass.
        outer = self._phase
        self._phase = name
        try:
            yield
        finally:
            self._phase = outer
            self._recording.leave(name)

    def stream(self, *, samples: int = 0) -> Stream:
        stream = self._recording.to_stream(samples)
        self._recording = Recording()
        return stream

    def register_model(self, model: Any) -> None:
        """Register what decides the kinds of memory: the parameters, of which autocast makes
        copies, and the sizes of the vocabulary and of a layer's experts."""
        self._parameters = {own.untyped_storage()._cdata for own in model.parameters()}
        experts = (getattr(part, "num_experts", 0) for part in model.modules())
        self.experts = next(filter(None, experts), 0)
        text_config = model.config.get_text_config()
        self.vocabulary = getattr(text_config, "vocab_size", None) or 0

    def register_batch(self, batch: BatchShapes) -> None:
        """Register which positions of the batch that is traced next hold tokens."""
        self.is_padded, self.real_tokens = batch.is_padded, batch.real_tokens

    def leave_out(self, tensor: torch.Tensor) -> None:
        """Leave out the allocation of a tensor that does not live on the device."""
        recording, number = self._storages.get(tensor.untyped_storage()._cdata, (None, 0))
        if recording is self._recording:
            self._recording.left_out.add(number)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device  # the most frequent call by far, so it comes first
        if DTensor in types:
            return NotImplemented  # it calls again with this rank's parts
        if func is _aten._local_scalar_dense.default:
            return self._value_of(args[0])
        if func.namespace == "bitsandbytes" and not func._schema.returns:
            self.record_operation(func, args, None)
            return None  # its update kernels work in place
        if func in _BY_MASK or torch.Tag.dynamic_output_shape in func.tags:
            selected = self._sized_by_values(func, args, kwargs or {})
            if selected is not None:
                return selected
        output = self._recorded(func, args, kwargs or {})
        if self.follows_values:
            follow(func, args, kwargs or {}, output)
        return output

    def _recorded(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        # Each thread takes a library's workspace once; the backward pass runs in its own.
        thread = "backward" if self._phase == "backward" else "forward"
        for library in libraries(func, args):
            self._recording.take_once(f"{library} {thread}", library)
        output, intermediate = run_as_cuda(func, args, kwargs, self._results)
        for tensor in (*intermediate, *tensors(output)):
            self._record_storage(tensor, func, args)
        if kind := _KINDS_OF_OUTPUTS.get(func._schema.name):
            for tensor in tensors(kwargs["out"]):
                self._recording.kinds[self._number(tensor)] = kind
        self._of_all.note(func, args, output)
        if func in _KERNELS:
            self._recording.kernels.add(_KERNELS[func])
        if func in _NEW_ATTENTION and has_no_older_kernel(*args[:2]):
            self._recording.kernels.add(NEEDS_AMPERE)
        self._recording.take_for_a_kernel(workspaces(func, args))
        self.record_operation(func, args, output)
        return output

    def _routed_tokens(self, mask: torch.Tensor) -> Any:
        """The positions of true values: of the experts with tokens, or of the tokens of one. Every
        expert has some, and none has more than another."""
        self._recording.kernels.add(EVEN_ROUTING)
        rows = mask.numel() // self.experts if mask.dim() > 1 else self.experts
        return self._nonzero(mask, rows)

    def _counts_tokens(self, mask: torch.Tensor) -> bool:
        """Whether it is a whole batch's mask, of which attention without padding asks."""
        return bool(self.real_tokens) and mask.dim() == 1 and mask.numel() != self.experts

    def _selected(self, func: Any, args: tuple[Any, ...], mask: torch.Tensor, rows: int) -> Any:
        """What a condition of known values selects, by the positions of its true values."""
        positions = self._nonzero(mask, rows)
        shape = (rows, *args[0].shape[mask.dim() :]) if func is _aten.index.Tensor else args[2]
        output = self._empty(args[0], shape, args[0].dtype)
        self.record_operation(func, args, output)
        del positions
        return output

    def _sized_by_values(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The result of an operator whose values decide how large it is; None: they are not known,
        and no usual batch stands for them."""
        if self.follows_values and (found := known_results(func, args, kwargs)):
            return self._of_known_shapes(func, args, found)
        if func is _aten.nonzero.default and self._counts_tokens(args[0]):
            return self._nonzero(args[0], self.real_tokens)
        if func is _aten.nonzero.default and self.experts:
            return self._routed_tokens(args[0])
        if func in _BY_MASK:
            mask = args[1][0] if func is _aten.index.Tensor else args[1]
            if (rows := true_values(mask)) is not None:
                return self._selected(func, args, mask, rows)
        return None

    def _of_known_shapes(self, func: Any, args: Any, found: Sequence[torch.Tensor]) -> Any:
        results = [self._empty(next(tensors(args)), own.shape, own.dtype) for own in found]
        for own, value in zip(results, found, strict=True):
            know(own, value)
        output = results[0] if len(func._schema.returns) == 1 else tuple(results)
        self.record_operation(func, args, output)
        return output

    def _nonzero(self, mask: torch.Tensor, rows: int) -> Any:
        return self._empty(mask, (rows, mask.dim()), torch.int64)

    def _empty(self, source: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> Any:
        return self._recorded(_aten.new_empty.default, (source, tuple(shape)), {"dtype": dtype})

    def _value_of(self, tensor: torch.Tensor) -> Any:
        if (number := number_of(tensor)) is not None:
            return number
        if tensor.dtype is not torch.bool:
            return True
        return tensor in self._of_all and not self.is_padded

    def launch(self, kind: str, tile: torch.Tensor, *, writes: bool) -> None:
        """Record a kernel that no operator runs. It works in place, and takes no memory."""
        access = ((self._number(tile), tile.nbytes),)
        own = Operation(kind, self._phase, reads=access, writes=access if writes else ())
        self._recording.operations.append(own)

    def repeated(self, times: int) -> Iterator[None]:
        """The first of many equal passes of a loop, which stands for what all of them compute."""
        operations = self._recording.operations
        before = len(operations)
        yield
        operations += operations[before:] * (times - 1)

    def record_operation(self, func: Any, args: tuple[Any, ...], output: Any) -> None:
        """Record what an operator computes, or a kernel that computes as much."""
        if own := operation(func, args, output, self._phase, self._number):
            self._recording.operations.append(own)

    def _number(self, tensor: torch.Tensor) -> int:
        """Of the tensor's storage: below 0 if it is older than the recording."""
        key = tensor.untyped_storage()._cdata
        recording, number = self._storages.get(key, (None, 0))
        return number if recording is self._recording else -1 - number

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Resize a storage: FSDP2 keeps those of gathered parameters, with 0 bytes in between."""
        if storage._cdata in self._storages:
            self._record_free(storage._cdata)
        _resize(storage, nbytes)
        if nbytes:
            self._take_storage(storage, "gathered parameters")

    def _record_storage(self, tensor: torch.Tensor, func: Any, args: tuple[Any, ...]) -> None:
        storage = tensor.untyped_storage()
        # A tensor of the device "meta" is in no memory.
        if storage._cdata not in self._storages and _device(tensor).type != "meta":
            self._take_storage(storage, self._kind(func, args, tensor.shape))

    def _take_storage(self, storage: torch.UntypedStorage, kind: str) -> None:
        # The weak reference calls ``_record_free`` when the storage is deleted.
        key, recording = storage._cdata, self._recording
        number = recording.take("tensor", (storage.nbytes(),), kind)
        if self._phase:
            recording.alive[number] = self._phase
        self._storages[key] = (recording, number)
        self._references[key] = weakref.ref(storage, lambda _: self._record_free(key))

    def _kind(self, func: Any, args: tuple[Any, ...], shape: torch.Size) -> str:
        """The kind of memory of an operator's result; empty if the phase decides it."""
        if len(shape) > 1 and shape[-1] == self.vocabulary:
            return "logits"
        if func is _aten._to_copy.default and args[0].untyped_storage()._cdata in self._parameters:
            return "autocast copies of weights"
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1:
            return "recomputed activations"
        return ""

    def _record_free(self, key: int) -> None:
        recording, number = self._storages.pop(key)
        del self._references[key]
        self._of_all.forget(key)
        if recording is self._recording:
            recording.alive.pop(number, None)
            recording.events.append(Free(number=number))


def _device(tensor: torch.Tensor) -> torch.device:
    """That of a tensor without data is asked for directly, because PyTorch takes long to tell."""
    return tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device
