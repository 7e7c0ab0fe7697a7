"""Runs an exported script up to its training, without the libraries that it needs.

Stand-ins take the libraries' places, so that everything is evaluated that holds values of the run,
and nothing is trained.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.support.commands import python

CANARY = "export_canary"
"""Name of the file that hostile code tries to create in its working folder."""

GUARD = """
import sys, types

class Inert:
    def __getattr__(self, name): return Inert()
    def __call__(self, *args, **kwargs): return Inert()
    def __bool__(self): return False
    def __iter__(self): return iter(())
    def __getitem__(self, key): return Inert()
    def __enter__(self): return self
    def __exit__(self, *error): return None

class Module:
    def __init__(self, name): self.__name__ = name
    def __getattr__(self, name):
        if name in ("Trainer", "TrainingArguments", "Dataset", "SFTTrainer", "SFTConfig"):
            return type(name, (), {})
        return Inert()

for name in ("torch", "transformers", "datasets", "accelerate", "numpy", "trl", "measured_data"):
    sys.modules[name] = Module(name)

class Options:
    synthetic = trust_remote_code = allow_own_code = False
    eval_share = 0.05

for script in sys.argv[1:]:
    sys.modules["exported"] = types.ModuleType("exported")
    namespace = sys.modules["exported"].__dict__
    namespace["__file__"] = script
    exec(compile(open(script, encoding="utf-8").read(), "train.py", "exec"), namespace)
    namespace["model_config"](Options())
    namespace["make_model"](Inert(), Inert(), Options())
    try:
        namespace["make_dataset"](Inert(), Inert(), Options())
    except SystemExit:
        pass
    print(script)
"""
"""Runs the parts of each train.py that hold the run's values, with stand-ins for the libraries."""


def run_guarded(scripts: Sequence[Path], work: Path) -> str:
    """What the guard prints. Fails if a script ends in an error."""
    work.mkdir()
    done = python("-I", "-c", GUARD, *scripts, cwd=work)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
