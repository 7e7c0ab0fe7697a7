"""Sequence-length axis: how many tokens a sample has."""

from jobs.techniques.base import Axis, Variant

SEQUENCE_LENGTH = Axis(
    name="sequence_length",
    doc="Tokens of a sample; longer rows of a data file are cut",
    default="data",
    variants={"data": Variant(doc="As `data` says")},
    integer_unit="tokens",
)
