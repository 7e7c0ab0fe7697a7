"""Records become tables, tables a frontier, the frontier pages. Read in this order:

run.py         the run folder's file names, what was run, the records
record_file.py a record's file, doubted: torn, foreign, of another version
columns.py     what columns the tables have
rows.py        records -> rows: plain mappings
coded.py       columns as arrays
views.py       a table -> rows that look up what is asked of them, and columns as arrays
anatomies.py   trials taken apart: rows of their table and back, whose tells of which trial
table.py       rows -> Arrow tables with units and meaning (the only file with pyarrow)
guard.py       rows whose losses are not their reference's
frontier.py    a point, and the Pareto front of memory and speed, or of more axes
points.py      rows -> points as columns; the fronts of very many
objectives.py  what a point can be good at: speed, energy, money, host memory
verification.py what was seen of budgets under caps
turns.py       close configurations, measured again in turns
ranking.py     the fastest in each budget
effects.py     what each technique did to the baseline
doubts.py      what trials warned of, alike warnings together
guide.py       the guide's published figures, beside ours taken its way
batch_size.py  the measured sizes of one technique set, and the answers among them
words.py       how figures are written where people read them
summary.py     all of it computed once, for the pages
page/          the pages: printed text, JSON, Markdown, picture, HTML
publishing.py  a run folder's tables and pages, written
location.py    where a run lies: a folder, or a URI
object_store.py, hub.py   what lies at a URI, listed, read and written; the Hub's way of it
schema.py      the tables' columns as a page of the documentation

measured.py    a run as an object to ask: what ``orchestrator.load`` returns. Its answers, each with its text beside it:
candidates.py  what can serve an effective batch, measured or inferred
recommendation.py, recommendation_text.py    the best under constraints, and what each constraint costs
differences.py  what is unlike about two runs to begin with
comparison.py, comparison_text.py            two runs: what changed beyond chance
explanation.py, explanation_text.py, explanation_picture.py    two trials: why one is faster or leaner
loss_curves.py, loss_curves_text.py    their losses, step by step, and what the guard says of them
export/        a row as files to train with
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.results.summary import Summary


def publish(run_folder: Path) -> Summary:
    """Write the run's tables and pages anew from its records, and return what they say.

    Works in mid-run too. Raises FileNotFoundError when the folder holds neither records nor ``trials.parquet``.
    """
    from orchestrator.results.publishing import publish as write_all

    return write_all(run_folder)
