"""Checkpoints and tokenizers by folder or name: is there one, and what does its config.json say?"""

import contextlib
import functools
import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from orchestrator.planning.problems import guess_after

CONFIG = "config.json"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "*.gguf")
_TOKENIZER_FILES = """
tokenizer.json vocab.txt vocab.json vocab-src.json tokenizer.model spiece.model
sentencepiece.bpe.model source.spm tekken.json added_tokens.json preprocessor_config.json
"""
"""Files of which the folder of a tokenizer, or of an image processor, has at least one."""
_CHAT_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
"""Files and folders with chat templates. Older tokenizers have theirs in tokenizer_config.json."""
_WITHOUT_FILES = ("byt5", "canine", "perceiver")
"""Tokenizers of bytes and characters, which need no vocabulary."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def model_problem(name: str) -> str:
    """What is wrong with a checkpoint's folder or name; empty if nothing is."""
    if not _is_path(name):
        return _hub_problem(name)
    folder = Path(name)
    problem = _folder_problem(folder, CONFIG)
    if problem:
        return problem
    if not (folder / CONFIG).exists():
        return _without_config(folder)
    if checkpoint_config(name) is None:
        return f"{folder / CONFIG} is no JSON object"
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        return f"{folder} has no weights (model.safetensors)"
    return ""


def tokenizer_problem(name: str) -> str:
    """What is wrong with a tokenizer's folder or name; empty if nothing is."""
    if not _is_path(name):
        return _hub_problem(name)
    folder = Path(name)
    problem = _folder_problem(folder, "tokenizer.json")
    settings = _json_object(folder / "tokenizer_config.json") or {}
    needs_none = str(settings.get("tokenizer_class", "")).lower().startswith(_WITHOUT_FILES)
    if problem or needs_none or any((folder / file).exists() for file in _TOKENIZER_FILES.split()):
        return problem
    return f"{folder} has no tokenizer: no tokenizer.json, vocab.txt, vocab.json or tokenizer.model"


def checkpoint_config(name: str) -> dict[str, Any] | None:
    """The config.json of a checkpoint that is on this machine; None if there is none."""
    configs = (_json_object(folder / CONFIG) for folder in _folders(name))
    return next((config for config in configs if config is not None), None)


@functools.cache
def fast_tokenizer(name: str) -> Any:
    """The tokenizer of a tokenizer.json on this machine; None if there is none."""
    paths = (folder / "tokenizer.json" for folder in _folders(name))
    path = next(filter(Path.is_file, paths), None)
    if path is None or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer  # transformers would take seconds

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # the package raises no narrower class
        return None
    # A saved tokenizer may cut and pad, which transformers switches off.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def lacks_chat_template(name: str) -> bool:
    """Whether a tokenizer that is on this machine has no chat template; False if it is not here."""
    folders = _folders(name)
    return any(map(Path.is_dir, folders)) and not any(map(_has_chat_template, folders))


@functools.cache
def chat_template(name: str) -> Callable[..., str] | None:
    """A function from ``messages`` to their text before an answer; None if this machine has no
    template for the tokenizer, or if it needs more of transformers than its settings."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # As in transformers.utils.chat_template_utils.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    for folder in _folders(name):
        settings = _json_object(folder / "tokenizer_config.json") or {}
        path = folder / _CHAT_TEMPLATES[0]
        text = path.read_text(encoding="utf-8") if path.is_file() else settings.get("chat_template")
        tokens = {key: own for key, own in settings.items() if isinstance(own, str)}
        # A list of named templates gives none.
        with contextlib.suppress(jinja2.TemplateError, TypeError):
            template = environment.from_string(cast(str, text))
            return functools.partial(template.render, **tokens, add_generation_prompt=True)
    return None


def _has_chat_template(folder: Path) -> bool:
    if any((folder / file).exists() for file in _CHAT_TEMPLATES):
        return True
    settings = _json_object(folder / "tokenizer_config.json") or {}
    return bool(settings.get("chat_template"))


def _folders(name: str) -> list[Path]:
    """The folder, or the downloaded versions of a name on the Hub."""
    return [Path(name)] if _is_path(name) else _snapshots(name)


def is_on_this_machine(name: str) -> bool:
    """Whether a folder, or a snapshot in the Hub's cache, has the files of a name."""
    return bool(_folders(name))


@functools.cache
def unreachable(name: str) -> str:
    """Why a name that this machine does not have cannot be had from the Hub; empty if it can. Asks
    the Hub once, for five seconds at most. transformers itself would try for half a minute, in
    every trial."""
    import urllib.error
    import urllib.request

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    request = urllib.request.Request(f"{endpoint}/api/models/{name}", method="HEAD")
    token = os.environ.get("HF_TOKEN")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=5):
            return ""
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):
            return f"{endpoint} has no {name}, or lets only some see it (set HF_TOKEN)"
        return ""  # the Hub is there; what it says now may be otherwise when a trial asks
    except (OSError, ValueError):
        return f"{name} is not on this machine, and {endpoint} cannot be reached"


def _is_path(name: str) -> bool:
    # The configuration has made every folder that exists absolute.
    return os.path.isabs(name)


def missing_folder(name: str, beside: Path) -> str:
    """Why a name with a slash is a folder, and no name on the Hub: its parent is a folder here.
    ``beside`` is the folder of the configuration. Empty if it may be on the Hub."""
    parent, _, last = name.rpartition("/")
    is_folder = bool(parent) and not _is_path(name) and (beside / parent).is_dir()
    if not is_folder or is_on_this_machine(name):
        return ""
    return _folder_problem(beside / parent / last, CONFIG)


def taken_for_a_name(name: str, beside: Path) -> str:
    """What to know about a name that is on the Hub, if anywhere."""
    folders = [path.name for path in beside.iterdir() if path.is_dir()]
    return f"there is no folder {name}, so it is a name on the Hub{guess_after(name, folders)}"


def _folder_problem(folder: Path, expected: str) -> str:
    if folder.is_dir():
        return ""
    if folder.exists():
        return f"{folder} is a file; give the folder that holds {expected}"
    message = f"there is no folder {folder}"
    if folder.parent.is_dir():
        message += guess_after(folder.name, [path.name for path in folder.parent.iterdir()])
    return message


def _without_config(folder: Path) -> str:
    checkpoints = sorted(folder.glob(f"*/{CONFIG}"))
    if checkpoints:
        return f'{folder} has no {CONFIG}; did you mean "{checkpoints[-1].parent}"?'
    if (folder / "adapter_config.json").exists():
        return f"{folder} holds an adapter (adapter_config.json), not a model with its {CONFIG}"
    return f"{folder} has no {CONFIG}: it is not a checkpoint that transformers saved"


def _hub_problem(name: str) -> str:
    if not _HUB_NAME.fullmatch(name):
        return f'there is no folder "{name}", and a name on the Hub looks like ORGANIZATION/MODEL'
    offline = next(filter(_is_set, _OFFLINE), "")
    if offline and not is_on_this_machine(name):
        return f"{name} is not on this machine, and {offline} forbids to download it"
    return ""


def _is_set(variable: str) -> bool:
    # As huggingface_hub reads it.
    return os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE")


def _snapshots(name: str) -> list[Path]:
    """The downloaded versions of a name in the Hub's cache, newest first."""
    cache = os.environ.get("HF_HUB_CACHE")
    if not cache:
        home = os.environ.get("HF_HOME") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
        )
        cache = os.path.join(home, "hub")
    folder = Path(cache, f"models--{name.replace('/', '--')}", "snapshots")
    try:
        return sorted(folder.iterdir(), key=os.path.getmtime, reverse=True)
    except OSError:
        return []


def _json_object(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > 4 * 2**20:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
