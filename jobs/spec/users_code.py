"""The user's own code that a trial runs. A spec has only the names, not the code."""

import keyword
import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class UserCode:
    """Objects of the user's own modules, each as ``module:object``; empty: the library's own."""

    trainer: str = ""
    """A subclass of ``transformers.Trainer``."""
    callbacks: tuple[str, ...] = ()
    """Subclasses of ``transformers.TrainerCallback``, or objects of one."""
    collator: str = ""
    """A function from rows to a batch, or a class whose objects can be called like that."""
    entry: str = ""
    """A function that makes the Trainer from the parts that it takes by name."""
    folder: str = ""
    """Modules are looked for here first, and then in the environment."""
    digest: str = ""
    """Digest of the sources of these modules, and of the modules beside them that they import."""

    def __post_init__(self) -> None:
        for text in (*self.names, self.folder, self.digest):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is not a text")  # a record may have been edited by hand

    @property
    def names(self) -> tuple[str, ...]:
        """Every object, as ``module:object``."""
        return tuple(filter(None, (self.trainer, *self.callbacks, self.collator, self.entry)))


def is_object_name(text: object) -> bool:
    """Whether a text is ``module:object``, both made of plain Python names."""
    # The name of a file may have 255 bytes.
    if not isinstance(text, str) or len(text) > 200 or not _NAME.fullmatch(text):
        return False
    return not any(map(keyword.iskeyword, re.split(r"[.:]", text)))
