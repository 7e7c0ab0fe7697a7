"""A trial's model, data and optimizer as the job builds them, on tensors without data."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import convert_to_fp32

from jobs.spec import ModelSpec, TrialSpec
from jobs.spec.library_settings import MODEL_PLACES
from jobs.tasks import auto_class
from jobs.techniques.axes.loop import enable_checkpointing
from jobs.techniques.hooks import bound
from jobs.trial import models
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.streams.affine_stream import Stream
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.tracing.cpu_arguments import autocast_dtype, cpu_arguments
from orchestrator.prediction.tracing.cuda.cuda_attention import Picks, allowed_kernels
from orchestrator.prediction.tracing.cuda.cuda_semantics import cuda_semantics
from orchestrator.prediction.tracing.fakes.fake_flash import flash_attention
from orchestrator.prediction.tracing.fakes.fake_host import host_memory
from orchestrator.prediction.tracing.fakes.fake_libraries import (
    leave_out_host_states,
    movable_modules,
    plain_paged_memory,
    recorded_resizes,
    unused_libraries,
    usual_masks,
)
from orchestrator.prediction.tracing.fakes.fake_quantized import packed_weights
from orchestrator.prediction.tracing.fakes.fake_ranks import shared, unreduced
from orchestrator.prediction.tracing.fakes.fake_trainer import counts, prepare, with_its_loss
from orchestrator.prediction.tracing.fakes.fake_triton import TritonModules
from orchestrator.prediction.tracing.fakes.fake_trl import TrlTrainer, trl_on_cuda
from orchestrator.prediction.tracing.fakes.fake_update import (
    Updates,
    made_optimizer,
    runs_trainer,
    update,
)
from orchestrator.prediction.tracing.fakes.fake_zero import engine_updates
from orchestrator.prediction.tracing.known_results import KnownResults
from orchestrator.prediction.tracing.known_values import know, readable_scalars
from orchestrator.prediction.tracing.rows.batches import Batches, BatchShapes, batches_of
from orchestrator.prediction.tracing.rows.trl_batches import TrlBatches
from orchestrator.prediction.unsupported import (
    depends_on_values,
    has_packed_base,
    is_fsdp,
    runs_trl,
    triton_libraries,
    waits_on_host,
)


class FakeStep:
    """The model of trials that differ only in batch and optimizer, and the parts of their step.

    Raises what building or running the trial would raise, and what ``FakeTensorMode`` raises for an
    operator whose result's shape depends on data.
    """

    def __init__(
        self,
        spec: TrialSpec,
        gpu: Gpu,
        known: KnownResults | None = None,
        batches: tuple[Batches, ModelSpec] | None = None,
    ) -> None:
        self.spec = spec
        self._gpu = gpu
        self.picks: Picks = set()
        self._known = known or KnownResults()
        self._recorder = AllocationRecorder(self._known)
        self._triton = TritonModules(triton_libraries(spec), gpu, self._recorder)
        self._arguments = cpu_arguments(spec)
        self.batches, self._model_spec = batches or batches_and_model(spec)
        if triton_libraries(spec):
            # Imported first, so that what Liger changes in the module is undone.
            config = models.architecture_config(spec.model)
            auto_class(spec.model.task, config)._model_mapping[type(config)]
        # All allocations of this phase are weights.
        with self.traced(), self._recorder.phase("build"):
            self.model = self._built_model()
            self._trl = self._trl_trainer()
            if self._trl is None:
                forward = shared(self.model, spec, self._pass, self._recorder)
                self._forward = with_its_loss(forward, self.model, spec, self._arguments)
        self.weights = self._recorder.stream()
        self._recorder.register_model(self.model)
        enable_checkpointing(self.model, self._arguments)
        prepare(self.model, spec, self._arguments)
        self.model.train()
        self._recorder.follows_values = depends_on_values(spec)

    def _trl_trainer(self) -> TrlTrainer | None:
        if not isinstance(self.batches, TrlBatches):
            return None
        parts = (self.model, self._arguments, self.batches)
        has_engine = self.spec.settings.deepspeed is not None
        dtype = None if has_engine else autocast_dtype(self.spec)
        return TrlTrainer(self.spec, *parts, dtype, self._recorder)

    @functools.cached_property
    def trained(self) -> str:
        """Equal for models whose updates are equal: modules, parameters, loop and sharding."""
        parameters = [
            (name, own.shape, own.dtype, own.requires_grad, type(own))
            for name, own in self.model.named_parameters()
        ]
        sharding = (
            self.spec.world_size,
            self.spec.settings.training_arguments.get("fsdp_config"),
            self.spec.settings.deepspeed,
        )
        return repr((self.model, parameters, runs_trainer(self.spec), sharding))

    @contextmanager
    def traced(self, *, is_recorded: bool = True) -> Iterator[None]:
        flash = flash_attention(deterministic=bool(self._arguments.full_determinism))
        with warnings.catch_warnings(), movable_modules(), usual_masks(), unused_libraries(), flash:
            warnings.simplefilter("ignore")
            on_cuda = cuda_semantics(self._gpu, self.picks, allowed_kernels(self.spec))
            triton = self._triton.present() if triton_libraries(self.spec) else nullcontext()
            packing = packed_weights() if has_packed_base(self.spec) else nullcontext()
            resizing = recorded_resizes(self._recorder)
            recorder = self._recorder if is_recorded else nullcontext()
            trl = trl_on_cuda(self._recorder) if runs_trl(self.spec) else nullcontext()
            scalars = readable_scalars()
            host = host_memory() if waits_on_host(self.spec) else nullcontext()
            with host, triton, trl, packing, on_cuda, resizing, scalars, self._known.mode, recorder:
                yield

    def _built_model(self) -> Any:
        spec = self._model_spec
        kwargs = self.spec.settings.model_kwargs
        base = bound(self.spec, "base")
        if spec.name_or_path is not None:
            # The architecture alone: weights of a checkpoint would need data.
            make = _from_architecture(spec, kwargs)
            model = make() if base is None else base(make, False, torch.device("cpu"))
            models.give_token_ids(model, spec.task)
        else:
            model = models.build(spec, kwargs, torch.device("cpu"), place=base)
        for place in MODEL_PLACES:
            if change := bound(self.spec, place):
                model = change(model, spec.task, self._arguments)
        if self.spec.settings.deepspeed is not None:
            model.to(autocast_dtype(self.spec) or torch.float32)  # as the engine does
        return model

    def micro_batches(
        self, batch: BatchShapes, *, samples: int, accumulated: bool
    ) -> tuple[Stream, Stream | None]:
        """A step's first micro-batch; if ``accumulated``, the next, which adds to gradients. Under
        FSDP2 the next is a whole step of two, because only its last one reduces gradients."""
        self.model.zero_grad()
        self._recorder.register_batch(batch)
        batches: list[Any] = []  # a step keeps the inputs of all its micro-batches
        later = None
        with self.traced():
            self._recorder.stream()
            batches.append(self._micro_batch(batch))
            first = self._recorder.stream(samples=samples)
            if accumulated:
                if is_fsdp(self.spec):
                    self.model.zero_grad()
                    self._recorder.stream()
                    with unreduced(self.model):
                        batches.append(self._micro_batch(batch))
                batches.append(self._micro_batch(batch))
                later = self._recorder.stream(samples=samples)
        return first, later

    def evaluation(self) -> Stream:
        """The last batch of an evaluation, on the longest rows: forward alone, without gradients.

        The logits of the batches before it are kept if a ``compute_metrics`` asks for them.
        """
        batch = self.batches.worst(int(self._arguments.eval_batch_size))
        self._recorder.register_batch(batch)
        self.model.eval()
        try:
            with self.traced(), torch.no_grad():
                self._recorder.stream()
                kept = self._kept_logits(batch)
                inputs = self._inputs(batch)
                with self._recorder.phase("forward"):
                    outputs = self._evaluated({**inputs, **counts(self.model, self.spec)})
                    if kept is not None:
                        # The Trainer joins what it keeps after every batch.
                        kept = torch.cat((kept, outputs.logits))
                    del outputs, inputs, kept
                return self._recorder.stream()
        finally:
            self.model.train()

    def _kept_logits(self, batch: BatchShapes) -> torch.Tensor | None:
        """The logits of all batches but the last that are on the GPU together; None: none are."""
        rows = self.spec.measure.upkeep.compute_metrics_rows
        if rows is None or self._arguments.prediction_loss_only:
            return None
        size = int(self._arguments.eval_batch_size)
        together = min(-(-rows // size), self._arguments.eval_accumulation_steps or rows)
        with self._recorder.phase("forward"):
            logits: torch.Tensor = self._evaluated(self._inputs(batch)).logits
            return logits.new_empty(((together - 1) * size, *logits.shape[1:]))

    def _evaluated(self, inputs: dict[str, Any]) -> Any:
        return self._forward(**inputs) if self._trl is None else self._trl.evaluate(inputs)

    def _inputs(self, batch: BatchShapes) -> dict[str, torch.Tensor]:
        with self._recorder.phase("inputs"):
            inputs = {
                name: torch.empty(own.shape, dtype=own.dtype) if torch.is_tensor(own) else own
                for name, own in batch.tensors.items()
            }
        for name, own in inputs.items():
            if self._recorder.follows_values and torch.is_tensor(own):
                know(own, batch.tensors[name])
        labels, config = batch.tensors.get("labels"), self.model.config
        is_class = labels is not None and labels.dim() == 1 and not labels.is_floating_point()
        if self.spec.model.task == "sequence-classification" and is_class and config.num_labels > 1:
            # As most models say themselves; DeBERTa first asks which rows have a label: all have.
            config.problem_type = config.problem_type or "single_label_classification"
        return inputs

    def _micro_batch(self, batch: BatchShapes) -> dict[str, torch.Tensor]:
        """Run forward and backward as the loop does; returns the inputs."""
        inputs = self._inputs(batch)
        if self._trl is not None:
            self._trl.train(inputs)
            return inputs
        # The loss and its arguments are gone before the next micro-batch.
        loss_arguments = counts(self.model, self.spec)
        with self._recorder.phase("forward"):
            loss = self._forward(**inputs, **loss_arguments).loss
        with self._recorder.phase("backward"):
            loss.backward()
            del loss, loss_arguments
        return inputs

    def _pass(self, **inputs: torch.Tensor) -> Any:
        """After autocast the outputs are in 32 bits, as accelerate converts them."""
        dtype = autocast_dtype(self.spec)
        if dtype is None or self.spec.settings.deepspeed is not None:
            return self.model(**inputs)
        with torch.autocast("cpu", dtype=dtype):
            outputs = self.model(**inputs)
        return convert_to_fp32(outputs)

    def updates(self, spec: TrialSpec) -> Updates:
        """Clipping and the optimizer's step of ``spec``."""
        arguments = cpu_arguments(spec)
        with self.traced(), plain_paged_memory():
            if spec.settings.deepspeed is not None:
                return engine_updates(self.model, spec, self._recorder)
            # The update needs the gradients that a micro-batch leaves.
            for parameter in self.model.parameters():
                parameter.grad = None
                if parameter.requires_grad:
                    parameter.grad = torch.empty_like(parameter)
            self._recorder.stream()
            with self._recorder.phase("update"):
                optimizer = made_optimizer(self.model, spec, arguments)
                update(self.model, spec, arguments, optimizer)
            paged = leave_out_host_states(optimizer, self._recorder)
            first = self._recorder.stream()
            # The second update finds the states of the first.
            with self._recorder.phase("update"):
                update(self.model, spec, arguments, optimizer)
            later = self._recorder.stream()
        self.model.zero_grad()
        return Updates(first=first, later=later, paged=tuple(paged))


def batches_and_model(spec: TrialSpec) -> tuple[Batches, ModelSpec]:
    """As ``batches_of``, also for TRL's own batches."""
    return (TrlBatches(spec), spec.model) if runs_trl(spec) else batches_of(spec)


def _from_architecture(spec: ModelSpec, kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    config = models.architecture_config(spec)
    dtype = getattr(torch, kwargs.get("dtype", "float32"))
    return functools.partial(
        auto_class(spec.task, config).from_config,
        config,
        trust_remote_code=spec.trust_remote_code,
        **{**kwargs, "dtype": dtype},
    )
