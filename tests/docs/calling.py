"""A verb's own parser, had without running the verb."""

import argparse
import importlib


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser that ``orchestrator.VERB`` reads its arguments with."""
    parser: argparse.ArgumentParser = importlib.import_module(f"orchestrator.{verb}").command_line()
    return parser
