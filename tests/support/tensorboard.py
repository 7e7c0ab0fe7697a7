"""TensorBoard's event files, read without TensorBoard."""

import struct
from collections.abc import Iterator
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def scalars_and_parameters(path: Path) -> tuple[dict[str, float], bytes]:
    """Tag -> value of a file's scalars, and the content of its hyperparameters."""
    scalars: dict[str, float] = {}
    parameters = b""
    for event in _events(path):
        for value in event.summary.value:
            if "hparams" in value.tag:
                parameters += value.metadata.plugin_data.content
            elif value.HasField("simple_value"):
                scalars[value.tag] = value.simple_value
    return scalars, parameters


def _events(path: Path) -> Iterator[Event]:
    """Each event stands between its length with a checksum (12 bytes) and a checksum (4 bytes)."""
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]
