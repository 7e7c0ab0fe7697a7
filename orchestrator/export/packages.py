"""Makes requirements.txt: the packages that an exported training imports, as measured."""

import re
from collections.abc import Iterator, Mapping

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from jobs.trial.requirements import DISTRIBUTIONS
from orchestrator.export.generated_code import one_line

_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)*")
"""A public version as in PEP 440, without an epoch or a local part such as ``+cu130``."""


def requirements(spec: TrialSpec, versions: Mapping[str, object]) -> str:
    """The text of requirements.txt. ``versions`` are those that the row was measured with."""
    lines = ["# What train.py imports, in the versions that were measured."]
    # A module that is not in the list becomes a comment, because any package may have its name.
    unknown = []
    for package in packages(spec):
        if package in _ALWAYS or package in DISTRIBUTIONS.values():
            lines.append(package + (_pin(versions.get(package)) or _TESTED.get(package, "")))
        else:
            unknown.append(package)
    for module in unknown:
        lines.append(f"# and the package that provides the module {one_line(module)}")
    return "\n".join(lines) + "\n"


_TESTED: Mapping[str, str] = {"trl": ">=1.16,<1.17"}
"""Package whose version no row records -> the versions that were tested."""
_ALWAYS = ("torch", "transformers", "accelerate", "datasets", "numpy", "pillow", "pyyaml")
"""Packages that a train.py may import with any technique."""


def packages(spec: TrialSpec) -> list[str]:
    """The packages that a train.py imports, each once, by their names on PyPI."""
    return list(dict.fromkeys(_packages(spec)))


def _packages(spec: TrialSpec) -> Iterator[str]:
    yield from ("torch", "transformers", "accelerate", "pyyaml")
    is_synthetic_image = spec.data.file is None and spec.model.task == "image-classification"
    if not is_synthetic_image:
        yield "datasets"
    yield "numpy"
    if spec.model.task.startswith("image-") and spec.data.file is not None:
        yield "pillow"
    for requirement in _requirements(spec):
        kind, _, name = requirement.partition(":")
        # A kernel of the Hub is loaded by a package, too.
        if module := {"package": name, "hub_kernel": "kernels"}.get(kind):
            yield DISTRIBUTIONS.get(module, module)


def _requirements(spec: TrialSpec) -> Iterator[str]:
    yield from map(str, spec.settings.requires)
    # The user's own arguments may name an optimizer that no axis chose.
    optimizer = spec.settings.training_arguments.get("optim")
    for variant in AXES["optimizer"].variants.values():
        if optimizer is not None and variant.training_arguments.get("optim") == optimizer:
            yield from variant.requires
    if spec.settings.deepspeed is not None:
        yield "package:deepspeed"
    if spec.settings.training_arguments.get("use_liger_kernel"):
        yield "package:liger_kernel"


def _pin(version: object) -> str:
    """``==5.23.0``; empty if the version is not known or is not a public one."""
    # Drop the local part, as in 2.13.0+cu130, because PyPI has only public versions.
    public = str(version or "").partition("+")[0]
    return f"=={public}" if _VERSION.fullmatch(public) else ""
