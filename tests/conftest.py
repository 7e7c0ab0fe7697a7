"""What every test may lean on: a quiet offline environment, a tiny trial, and one Ray for all tests
of a worker.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, settings

from jobs.isolation import prewarm
from jobs.node.environment import cores
from jobs.spec import Choice, DataSpec, MeasureSpec, ModelSpec, Needs, SyntheticData, TrialSpec
from jobs.techniques import AXES, merge
from orchestrator.planning import library_facts
from tests.support.arithmetic import ENVIRONMENT

ROOT = Path(__file__).parents[1]

# Before anything heavy is imported, and inherited by every process that a test starts.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GOMP_SPINCOUNT": "0",
    **ENVIRONMENT,
    "MPLBACKEND": "Agg",
    "ORCHESTRATOR_HOOK_MODULES": "tests.support.faults",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # DeepSpeed's ops are built quickly, and apart from those that sweeps train with.
    "CXX": str(ROOT / "tests/support/quick_compiler/c++"),
    "TORCH_EXTENSIONS_DIR": str(ROOT / ".pytest_cache/torch_extensions"),
}.items():
    os.environ.setdefault(_name, _value)

# The same examples every time: a test that fails does so for everybody.
settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("deterministic")

TINY_BERT: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 128,
    "max_position_embeddings": 16,
}

TINY_CONFIG = yaml.safe_dump(
    {
        "model": {
            "task": "sequence-classification",
            "architecture": "bert",
            "config": dict(TINY_BERT),
        },
        "data": {"synthetic": {"sequence_length": 16, "samples": 16}},
    }
)
"""The model and the data of a tiny sweep, to which a test adds what it is about."""

SpecFactory = Callable[..., TrialSpec]


def build_tiny_spec(
    choices: Mapping[str, Choice] | None = None,
    *,
    training_arguments: Mapping[str, Any] | None = None,
    repeat: int = 0,
    **measure: Any,
) -> TrialSpec:
    """A trial of a two-layer BERT that a CPU runs in a second: one warm-up step and two counted,
    fp32, micro-batch 2.

    ``choices`` replace the axes' defaults; ``measure`` are fields of ``MeasureSpec``.
    """
    chosen = (
        {name: axis.default for name, axis in AXES.items()}
        | {"micro_batch": 2}
        | dict(choices or {})
    )
    variants = [AXES[name].variant(value) for name, value in chosen.items()]
    return TrialSpec(
        choices=chosen,
        model=ModelSpec(task="sequence-classification", architecture="bert", config=TINY_BERT),
        data=DataSpec(synthetic=SyntheticData(sequence_length=16, samples=16)),
        settings=merge(variants, training_arguments or {}, None),
        measure=MeasureSpec(**{"warmup_steps": 1, "steps": 2, "timeout_seconds": 120.0} | measure),
        needs=Needs(gpus=0, cpus=1),
        repeat=repeat,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read what the libraries know before the tests, because the first reading takes a while."""
    gc.disable()  # until all tests are collected: there is little garbage in imports
    # Workers of pytest-xdist start after this, and find it in the cache.
    if not hasattr(config, "workerinput"):
        library_facts.facts()


SHARING = {
    "Ray": "doctor object_stores pages sweep tune",
    "fork server": "anatomy decoder_techniques export export_trl secrets sharding techniques",
}
"""What test_NAME.py of tests/integration or tests/docs starts once for a worker -> these names."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker gets all files that share what takes long to start, so no other starts it."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            _, room, name = file.removesuffix(".py").split("/", 2)
            if room in ("docs", "integration"):
                for shared, names in SHARING.items():
                    if name.removeprefix("test_") in names.split():
                        return shared
            return file

    return Sharing(config, log)


def pytest_collection_finish() -> None:
    """Libraries stay in memory, so collections of garbage can skip them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def tiny_spec() -> SpecFactory:
    """``build_tiny_spec``: call it with the choices a test is about, as in
    ``tiny_spec({"optimizer": "sgd"})``.
    """
    return build_tiny_spec


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Where fresh processes come from, with the libraries imported once for all tests of a worker.

    ``tests.support.fresh_processes`` runs trials and exported trainings in them.
    """
    from tests.support.fresh_processes import started

    return started()


@pytest.fixture(scope="session")
def parents_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where slots of ``ray_session`` look for a waiting parent."""
    return tmp_path_factory.mktemp("parents")


@pytest.fixture(scope="session")
def ray_session(parents_folder: Path) -> Iterator[None]:
    """A local Ray of two CPUs, started once for all tests of a worker that ask for it."""
    import ray

    # Ray sets variables of its own, which commands of the tests need to join it.
    os.environ[prewarm.FOLDER_VARIABLE] = str(parents_folder)
    ray.init(
        "local",
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    del os.environ[prewarm.FOLDER_VARIABLE]
    yield
    ray.shutdown()


@pytest.fixture
def ray_with_libraries(
    ray_session: None, processes: ForkServerContext, parents_folder: Path
) -> Iterator[None]:
    """``ray_session``, whose first slot has a parent with the libraries already."""
    from tests.support.fresh_processes import waiting_parent

    with waiting_parent(processes, parents_folder, cores()):
        yield


def pytest_unconfigure() -> None:
    """What a test imported for good is collected with the rest: objects that were frozen would be
    reported as leaks.
    """
    gc.unfreeze()
