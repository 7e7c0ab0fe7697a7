"""A verb's own parser, had without running the verb."""

from __future__ import annotations

import argparse
import importlib
from unittest import mock

import pytest


class _Reached(Exception):
    """The verb is about to read its arguments."""


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser that ``orchestrator.VERB`` reads its arguments with."""
    main = importlib.import_module(f"orchestrator.{verb}").main
    with mock.patch.object(argparse.ArgumentParser, "parse_args", _stop), pytest.raises(_Reached) as reached:
        main([])
    (parser,) = reached.value.args
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def _stop(parser: argparse.ArgumentParser, arguments: object = None) -> None:
    raise _Reached(parser)
