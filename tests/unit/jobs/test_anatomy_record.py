"""Anatomies as plain data."""

from __future__ import annotations

import json

from jobs.anatomy_record import anatomy_from_json
from jobs.spec import to_json
from tests.support.records import make_anatomy


def test_anatomy_survives_json() -> None:
    anatomy = make_anatomy()
    assert anatomy_from_json(json.loads(json.dumps(to_json(anatomy)))) == anatomy
