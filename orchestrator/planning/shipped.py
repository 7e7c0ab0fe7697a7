"""The configurations that are shipped with the program."""

from pathlib import Path

from orchestrator.planning.problems import advice
from orchestrator.storage.layout import written_beside
from orchestrator.storage.user_files import refuse_used_file

SCHEMA = "schema.json"


def write_shipped(name: str, target: Path, *, force: bool) -> tuple[Path, ...]:
    """Copy the configuration of this name, and the schema that editors use for completion. Returns
    the files that changed. Raises LookupError for another name, and FileExistsError if a different
    file has either name, unless ``force``."""
    shipped = shipped_configurations()
    if name not in shipped:
        raise LookupError(f'no configuration "{name}"; {advice(name, list(shipped))}')
    source = shipped[name]
    copies = {target: source, target.parent / SCHEMA: source.parent / SCHEMA}
    contents = {path: original.read_text(encoding="utf-8") for path, original in copies.items()}
    # Check both files before writing either. A file that is already equal stays as it is.
    changed = [path for path, content in contents.items() if not _has_content(path, content)]
    for path in changed:
        refuse_used_file(path, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in changed:
        with written_beside(path) as partial:
            partial.write_text(contents[path], encoding="utf-8")
    return tuple(changed)


def configurations_folder() -> Path:
    """Where shipped configurations are: in or beside the package. Raises FileNotFoundError."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / SCHEMA).exists():
            return folder
    raise FileNotFoundError(f"{package} was installed without its configurations")


def shipped_configurations() -> dict[str, Path]:
    """Name of each shipped configuration -> its file, in the order of the names."""
    return {path.stem: path for path in sorted(configurations_folder().glob("*.yaml"))}


def _has_content(path: Path, content: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == content
    except (OSError, UnicodeDecodeError):
        return False


def about(path: Path) -> str:
    """What a configuration is for: its first comment, except the line for editors."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = (line.removeprefix("# ") for line in lines if line.startswith("# "))
    return next((text for text in comments if "yaml-language-server" not in text), "")
