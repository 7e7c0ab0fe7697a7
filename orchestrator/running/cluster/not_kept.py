"""What Tune is not to write down."""

from __future__ import annotations

from typing import Any


class NotKept:
    """Tune writes what it is given to disk, to restore a run from; ours are resumed from their records."""

    def __getstate__(self) -> dict[str, Any]:
        return {}
