"""How many trainings of others a prediction answers, and why the rest have no figure.

FILE is what ``python -m tests.benchmarks.breadth FOLDER --predict FILE`` wrote.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator

import pyarrow.parquet as pq

ANSWERS = ("figure", "bound", "refused", "nothing")
"""The memory; at least so much; the training raises; no answer, or none in time."""


def lines(options: Namespace) -> Iterator[str]:
    rows = pq.read_table(options.answers).to_pylist()
    counts = Counter(row["answer"] for row in rows)
    answered = len(rows) - counts["nothing"]
    share = answered / len(rows)
    yield f"{answered} of {len(rows)} predicted trainings are answered ({100 * share:.1f} %)"
    for answer in ANSWERS:
        yield f"{counts[answer]:4} {answer}"
    reasons = Counter((row["answer"], row["reason"]) for row in rows if row["reason"])
    for (answer, reason), count in reasons.most_common():
        yield f"{count:4} {answer}: {reason}"
