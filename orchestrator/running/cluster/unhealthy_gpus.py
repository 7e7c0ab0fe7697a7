"""GPUs that turned out unhealthy during a sweep, and which of them run trials nevertheless."""

from collections.abc import Callable, Collection

from orchestrator.running.cluster.messages import GpuProblem, UnhealthyGpu

_WHAT_HAPPENED = {
    GpuProblem.LOST: "does not answer any more and was set aside",
    GpuProblem.DEAD: "fails at every CUDA call and was set aside",
    GpuProblem.OTHER_MODEL: "is of a model that no trial is planned for",
    GpuProblem.SHARED: "is used by other processes, too: its trials go to other GPUs of its model",
}


class UnhealthyGpus:
    """The unhealthy GPUs of a sweep that began with ``first_nodes`` (ids), each kept by the Tune
    trial that found it. If all GPUs of a model are unhealthy, trials run on the shared ones."""

    def __init__(self, say: Callable[[str], object], first_nodes: Collection[str]) -> None:
        self._say = say
        self._first_nodes = frozenset(first_nodes)
        self._keepers: dict[str, str] = {}
        """Tune trial that keeps an unhealthy GPU -> the GPU model that it is planned for."""
        self.measured_shared: set[str] = set()
        """GPU models that run trials although other processes use their GPUs."""
        self._new_models: set[str] = set()
        self.notes: dict[str, None] = {}
        """Sentences for the report, each once."""

    def count(self, gpu_model: str) -> int:
        """How many GPUs of this model are unhealthy, so that no trial gets them."""
        return list(self._keepers.values()).count(gpu_model)

    def report(self, tune_trial_id: str, gpu: UnhealthyGpu, *, slots: int) -> bool:
        """Take an actor's report on one of ``slots`` GPUs. Returns whether it must give the GPU
        back."""
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
        if model not in self.measured_shared and self.count(model) >= slots:
            self.measured_shared.add(model)
            self._note("every GPU that is left is shared: rows measured beside others say so")
        return model in self.measured_shared

    def forget(self, tune_trial_id: str) -> None:
        """The Tune trial has ended, so it keeps no GPU any more."""
        self._keepers.pop(tune_trial_id, None)

    def announce_model(self, gpu_model: str) -> None:
        """Say once that a GPU model joined for which no trial is planned."""
        if gpu_model not in self._new_models:
            self._new_models.add(gpu_model)
            self._say(
                f"a new GPU model joined ({gpu_model}): run the same command with --resume to"
                " measure on it, too"
            )

    def _announce(self, gpu: UnhealthyGpu) -> None:
        has_joined = gpu.node_id not in self._first_nodes
        if gpu.problem is GpuProblem.OTHER_MODEL and has_joined:
            self.announce_model(gpu.found_model)
        else:
            self._note(f"{gpu.gpu} {_WHAT_HAPPENED[gpu.problem]}: {gpu.reason}")

    def _note(self, sentence: str) -> None:
        self.notes[sentence] = None
        self._say(sentence)
