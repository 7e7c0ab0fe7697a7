"""The registry of hooks: names from specs, and modules that a node adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.techniques.hooks import MODULES_VARIABLE, UnknownHookError, bound, hook, registered
from tests.conftest import build_tiny_spec


@pytest.mark.parametrize("name", ["os.system", "user_code_problem"])
def test_registered_with_a_name_that_is_no_hook_raises(name: str) -> None:
    """A service is no hook: a spec from a run folder must not import the code that it names."""
    with pytest.raises(UnknownHookError, match=f'no hook is named "{name}"'):
        registered(name)


def test_registered_imports_the_modules_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from jobs.techniques.hooks import hook\n@hook('mine')\ndef mine(): return 7\n"
    (tmp_path / "my_hooks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(MODULES_VARIABLE, "my_hooks")
    assert registered("mine")() == 7


def test_hook_with_a_name_that_is_taken_raises() -> None:
    with pytest.raises(ValueError, match="two hooks are named lora"):
        hook("lora")(Path.cwd)


def test_bound_fills_in_the_arguments_of_the_spec() -> None:
    spec = build_tiny_spec({"adapter": "lora_r8"})
    adapt = bound(spec, "model")
    assert adapt is not None
    assert adapt.keywords == {"rank": 8}  # type: ignore[attr-defined]
    assert bound(spec, "optimizer") is None
