"""Rewrites the tables of recorded runs in place as docs/results keeps them: small.

    python -m tests.support.compact_tables docs/results

Columns without a value, the descriptions of columns (docs/schema.md has them), statistics, and the
copy of the configuration beside the run's description are left out. No value changes.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

AXIS = b"axis"
"""Of a field's metadata, the reader needs the name of its axis alone."""


def compact(path: Path) -> None:
    table = pq.read_table(path)
    filled = [name for name in table.column_names if table[name].null_count < len(table)]
    table = table.select(filled)
    fields = []
    for field in table.schema:
        axis = (field.metadata or {}).get(AXIS)
        metadata = None if axis is None else {AXIS: axis}
        fields.append(field.remove_metadata().with_metadata(metadata))
    about = dict(table.schema.metadata or {})
    about.pop(b"config", None)
    pq.write_table(
        table.cast(pa.schema(fields, metadata=about)),
        path,
        compression="zstd",
        compression_level=19,
        write_statistics=False,
        write_page_checksum=True,
    )


if __name__ == "__main__":
    for table in sorted(Path(sys.argv[1]).rglob("*.parquet")):
        compact(table)
