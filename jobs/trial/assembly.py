"""Makes a ``Setup`` from a spec: data, arguments, model, optimizer and meter for a loop."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from jobs.errors import UnsupportedError
from jobs.loops.contract import Setup
from jobs.loops.meter import Meter
from jobs.loops.trainer_arguments import training_arguments
from jobs.node import environment
from jobs.ragged_steps import RaggedSteps
from jobs.spec import TrialSpec
from jobs.spec.library_settings import MODEL_PLACES, PROCESS_PLACES
from jobs.steady_state import wanted_error
from jobs.techniques.hooks import bound, hook_name, service
from jobs.trackers.launch_bound import LaunchBound
from jobs.trackers.sources.layer_stacks import report_stacks
from jobs.trackers.tracker import Moment, Tracker, notify
from jobs.trial import data, models
from jobs.trial.data import Collator, RowLengths
from jobs.trial.data.tokenizing import loaded_tokenizer
from jobs.trial.gradients.reference import keep_code, plain, restore_code, without_dropout

Announce = Callable[[str], None]  # called with the name of each phase of the trial as it begins


def assemble(
    spec: TrialSpec,
    trackers: Sequence[Tracker],
    enter: Announce,
    device: torch.device,
    scratch: str,
) -> tuple[Setup, RowLengths | None]:
    """Everything that a loop needs, and the lengths of the data's rows if they differ."""
    enter("data")
    user = None if spec.own_code is None else service("user_objects")(spec.own_code)
    warmup_steps = _warmup_steps(spec, device)
    dataset, collator = _dataset(spec, _total_steps(spec, warmup_steps), user)
    lengths = _lengths(spec, dataset)
    ragged = None
    if lengths is not None:
        ragged = ragged_steps(spec, lengths, collator, warmup_steps)
        warmup_steps = ragged.warmup_steps
    steps = _total_steps(spec, warmup_steps)
    dataset = _repeated(spec, dataset, steps)

    enter("model")
    arguments = _arguments(spec, steps, scratch)
    model = _model(spec, dataset, arguments, device)
    notify(trackers, Moment.MODEL, device)
    # A compiler of the whole model would meet what reports.
    if device.type == "cuda" and not arguments.torch_compile:
        report_stacks(model, LaunchBound.among(trackers).between_stacks)

    enter("trainer")
    make_optimizer = bound(spec, "optimizer")
    meter = Meter(
        trackers,
        enter,
        warmup_steps=warmup_steps,
        total_steps=steps or _steps_in_an_epoch(spec, len(dataset)),
        relative_error=_relative_error(spec, device),
        device=device,
        count_samples=getattr(collator, "count_samples", None),
        ragged=ragged,
    )
    setup = Setup(
        model=model,
        dataset=dataset,
        collator=collator,
        arguments=arguments,
        optimizer=None if make_optimizer is None else make_optimizer(model, arguments),
        meter=meter,
        ragged=ragged,
        user=user,
    )
    return setup, lengths


def _arguments(spec: TrialSpec, steps: int | None, scratch: str) -> Any:
    """``TrainingArguments``, and the state of the process that a model is built in."""
    for set_state in filter(None, (bound(spec, place) for place in PROCESS_PLACES)):
        set_state()
    # Making the arguments also sets up DeepSpeed's process group and ZeRO-3's way of building a
    # model. So they must exist before the model does.
    arguments = training_arguments(
        spec, output_dir=scratch, total_steps=steps, deepspeed=_deepspeed(spec, scratch)
    )
    transformers.set_seed(spec.measure.seed)
    return arguments


def cores(spec: TrialSpec) -> int:
    """CPU cores of a rank: its share of what the trial reserved, or of all that it may use."""
    return max(1, (spec.needs.cpus or environment.cores()) // spec.world_size)


def _warmup_steps(spec: TrialSpec, device: torch.device) -> int:
    """As many as the spec asks for; at least two if a CPU trial is inspected. Its memory is tracked
    in the last one, and optimizer states exist only from the second on."""
    asked = spec.measure.warmup_steps
    return max(asked, 2) if device.type == "cpu" and spec.measure.inspect else asked


def _relative_error(spec: TrialSpec, device: torch.device) -> float:
    """When the meter may stop. Ranks must end together, and their own times would not agree."""
    return 0.0 if spec.world_size > 1 else wanted_error(spec.measure.relative_error, device.type)


def _total_steps(spec: TrialSpec, warmup_steps: int) -> int | None:
    """At most so many optimizer steps, warm-up included; None: one whole epoch."""
    return None if spec.measure.steps is None else warmup_steps + spec.measure.steps


def ragged_steps(
    spec: TrialSpec, lengths: RowLengths, collator: Any, warmup_steps: int
) -> RaggedSteps:
    """The steps of an epoch that a trial trains on. The collator decides the shapes of batches."""
    return RaggedSteps(
        list(lengths.by_column.values()),
        lengths.sequences,
        micro_batch=spec.micro_batch,
        accumulation=spec.accumulation,
        joins_rows=getattr(collator, "flattens_rows", False),
        pad_to_multiple_of=getattr(collator, "pad_to_multiple_of", None) or 1,
        warmup_steps=warmup_steps,
        counted_steps=spec.measure.steps,
        samples=getattr(collator, "samples_of_rows", None),
    )


def _steps_in_an_epoch(spec: TrialSpec, samples: int) -> int:
    """Optimizer steps of one pass over the data. The last micro-batch and step may be short."""
    micro_batches = math.ceil(samples / (spec.micro_batch * spec.world_size))
    return math.ceil(micro_batches / spec.accumulation)


def _dataset(spec: TrialSpec, steps: int | None, user: Any) -> tuple[Any, Collator | None]:
    """The dataset for ``steps`` steps (None: one epoch), and its collator (None: the default)."""
    # Enough for all steps, because an epoch that ends within a measurement disturbs it.
    samples = None if steps is None else steps * spec.effective_batch
    config = models.architecture_config(spec.model)
    seed = spec.measure.seed
    if prepare := bound(spec, "rows") or bound(spec, "preferences"):
        return prepare(
            spec.data, config, samples=samples, seed=seed, batching=hook_name(spec, "batching")
        )
    dataset, collator = data.load(spec.data, spec.model.task, config, samples=samples, seed=seed)
    if user is not None:
        collator = user.collator_for(getattr(collator, "tokenizer", None)) or collator
    if wrap := bound(spec, "collator"):
        collator = wrap(collator or transformers.default_data_collator)
    if batch := bound(spec, "batching"):
        dataset, collator = batch(
            dataset,
            collator or transformers.default_data_collator,
            attention=str(spec.settings.model_kwargs.get("attn_implementation", "")),
            tokens=spec.data.tokens,
        )
    return dataset, collator


def _repeated(spec: TrialSpec, dataset: Any, steps: int | None) -> Any:
    """Synthetic rows often enough for all steps: packing makes fewer of them."""
    samples = (steps or 0) * spec.effective_batch
    if spec.data.synthetic is None or len(dataset) >= samples:
        return dataset
    return dataset.select([index % len(dataset) for index in range(samples)])


def _lengths(spec: TrialSpec, dataset: Any) -> RowLengths | None:
    """The lengths of the rows. None if they are equal, or if they are padded to one length.
    UnsupportedError for several ranks."""
    synthetic = spec.data.synthetic
    if synthetic is not None and synthetic.lengths is None:
        return None
    lengths = data.ragged_lengths(dataset)
    if lengths is not None and spec.world_size > 1:
        # The ranks would share out the rows that stand for an epoch of one process.
        raise UnsupportedError("equal_rows", "rows of unequal length are measured on one GPU only")
    return lengths


def _model(spec: TrialSpec, dataset: Any, arguments: Any, device: torch.device) -> torch.nn.Module:
    """The model on its device as its hooks leave it, with as many classes as the user's data."""
    model_spec, pad_token_id = spec.model, 0
    if spec.data.file is not None:
        config = models.architecture_config(spec.model)
        model_spec = data.fitted(spec.model, dataset, config_labels=config.num_labels or 0)
        if spec.data.file.tokenizer is not None and getattr(config, "pad_token_id", None) is None:
            pad_token_id = loaded_tokenizer(spec.data.file.tokenizer).pad_token_id
    model = models.build(
        model_spec,
        spec.settings.model_kwargs,
        device,
        place=bound(spec, "base"),
        pad_token_id=pad_token_id,
    )
    if spec.measure.gradients:
        keep_code()
    for place in MODEL_PLACES:
        if change := bound(spec, place):
            model = change(model, spec.model.task, arguments)
    # Random masks cannot be equal in two kernels, so gradients are compared without dropout.
    return without_dropout(model) if spec.measure.gradients else model


def reference_model(spec: TrialSpec, setup: Setup, device: torch.device) -> torch.nn.Module:
    """The model of the same training in fp32, without what only changes how it is computed."""
    restore_code()
    return _model(plain(spec), setup.dataset, setup.arguments, device)


def _deepspeed(spec: TrialSpec, scratch: str) -> dict[str, Any] | None:
    """DeepSpeed's configuration for this process alone; None: no DeepSpeed."""
    if spec.settings.deepspeed is None:
        return None
    from jobs.loops import deepspeed

    nvme_path = spec.needs.nvme_path or scratch
    return deepspeed.prepare(spec.settings.deepspeed, nvme_path=nvme_path, cpus=cores(spec))
