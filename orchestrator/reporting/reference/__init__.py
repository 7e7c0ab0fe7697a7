"""Pages of docs/ that are made from the source.

config_reference.py  docs/configuration.md: every key of a config
schema_page.py       docs/schema.md: every column of the tables
"""

from importlib.resources import files
from typing import Any


def rendered(template: str, **values: Any) -> str:
    """A template of this folder with its values, which are Markdown already."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"one_line": one_line, "sentence": sentence}
    text = files("orchestrator.reporting.reference").joinpath(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(**values)


def one_line(text: str) -> str:
    return " ".join(text.split())


def sentence(doc: str) -> str:
    text = doc.rstrip(":.")
    return f"{text[:1].upper()}{text[1:]}."
