"""GPUs that turned out unfit during a sweep, and which of them run trials nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Collection

from orchestrator.running.cluster.messages import GpuProblem, UnfitGpu

_WHAT_HAPPENED = {
    GpuProblem.LOST: "does not answer any more and was set aside",
    GpuProblem.DEAD: "fails at every CUDA call and was set aside",
    GpuProblem.OTHER_MODEL: "is of a model that no trial is planned for",
    GpuProblem.SHARED: "is used by other processes, too: its trials go to other GPUs of its model",
}


def new_model_message(gpu_model: str) -> str:
    """The message about a GPU model that joined during a sweep."""
    return (
        f"a new GPU model joined ({gpu_model}): run the same command with --resume to measure on"
        " it, too"
    )


class UnfitGpus:
    """The unfit GPUs of a sweep.

    The Tune trial that found a GPU unfit keeps the GPU until it is fit (see ``SlotTrainable``). If
    all GPUs of a model are unfit, trials run on the shared ones nevertheless. ``say`` takes
    messages. ``first_nodes`` are the ids of the nodes that the sweep began with.
    """

    def __init__(self, say: Callable[[str], None], first_nodes: Collection[str]) -> None:
        self._say = say
        self._first_nodes = frozenset(first_nodes)
        self._keepers: dict[str, str] = {}
        """Tune trial that keeps an unfit GPU -> the GPU model that it is planned for."""
        self._measured_shared: set[str] = set()
        """GPU models that run trials although other processes use their GPUs."""
        self._new_models: set[str] = set()
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about unfit GPUs, for the report."""
        return tuple(dict.fromkeys(self._notes))

    def count(self, gpu_model: str) -> int:
        """How many GPUs of this model are unfit, so that no trial gets them."""
        return list(self._keepers.values()).count(gpu_model)

    def is_measured_shared(self, gpu_model: str) -> bool:
        """Whether this model's GPUs run trials although other processes use them."""
        return gpu_model in self._measured_shared

    def report(self, tune_trial_id: str, gpu: UnfitGpu, *, slots: int) -> bool:
        """Take an actor's report. Returns whether its Tune trial must give the GPU back.

        ``slots`` are those of the GPU's model, unfit GPUs included.
        """
        if not gpu.reason:
            self._say(f"{gpu.gpu} is fit again")
            return False
        # The first report of a GPU is announced; later ones only renew it.
        model = gpu.planned_model
        if tune_trial_id not in self._keepers:
            self._keepers[tune_trial_id] = model
            self._announce(gpu)
        if gpu.problem is not GpuProblem.SHARED:
            return False
        # If no better GPU is left, trials run on the shared ones, and their rows say so.
        if not self.is_measured_shared(model) and self.count(model) >= slots:
            self._measured_shared.add(model)
            self._note("every GPU that is left is shared: rows measured beside others say so")
        return self.is_measured_shared(model)

    def forget(self, tune_trial_id: str) -> None:
        """The Tune trial has ended, so it keeps no GPU any more."""
        self._keepers.pop(tune_trial_id, None)

    def announce_model(self, gpu_model: str) -> None:
        """Say once that a GPU model joined for which no trial is planned."""
        if gpu_model not in self._new_models:
            self._new_models.add(gpu_model)
            self._say(new_model_message(gpu_model))

    def _announce(self, gpu: UnfitGpu) -> None:
        has_joined = gpu.node_id not in self._first_nodes
        if gpu.problem is GpuProblem.OTHER_MODEL and has_joined:
            self.announce_model(gpu.found_model)
        else:
            self._note(f"{gpu.gpu} {_WHAT_HAPPENED[gpu.problem]}: {gpu.reason}")

    def _note(self, sentence: str) -> None:
        self._notes.append(sentence)
        self._say(sentence)
