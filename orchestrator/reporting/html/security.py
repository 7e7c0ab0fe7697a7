"""The page's content security policy: nothing runs but its own scripts, and nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable


def content_security_policy(scripts: Iterable[str]) -> str:
    """The policy of a page with these inline scripts, which are allowed by their hashes.

    Styles may be inline, because the chart library sets them; without network they leak nothing.
    """
    # A hash allows exactly one text; anything that a run smuggles in has another.
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(script: str) -> str:
    """SHA-256 in base64, of the text between the script's tags."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
