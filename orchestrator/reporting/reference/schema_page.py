"""The columns of the published tables as a page.

python -m orchestrator.reporting.reference.schema_page > docs/schema.md
"""

from collections.abc import Iterable, Mapping

from jobs.flags import FlagKind
from jobs.record import SCHEMA_VERSION, Column
from jobs.spec import Purpose
from orchestrator.planning.keys.schema import documented_fields
from orchestrator.reporting.flags import WORDINGS
from orchestrator.reporting.markdown import grid
from orchestrator.reporting.reference import rendered
from orchestrator.reporting.verbs.tune_result import ResultConfiguration, TuneResult, TuneResults
from orchestrator.storage.search_summary import BudgetResult
from orchestrator.storage.tables import columns
from orchestrator.storage.tables.trial_table import PARTS

PURPOSES: Mapping[Purpose, str] = {
    Purpose.SEARCH: "A trial of the search. Only these are ranked.",
    Purpose.CAP_CHECK: "A pick again, its GPU's memory capped to the budget: does it fit?",
    Purpose.TIE_BREAK: "Close configurations again, interleaved on one GPU: which is faster?",
    Purpose.GRADIENTS: "A pick again for one step: are its gradients those of the model in fp32?",
    Purpose.PROFILE: "A configuration again, to see where its memory and time go.",
}
"""Purpose -> why such a trial is run."""


def render() -> str:
    """The page as Markdown."""
    flags = [[kind.value, WORDINGS[kind].heading, WORDINGS[kind].value] for kind in FlagKind]
    return rendered(
        "schema_page.md.j2",
        schema_version=SCHEMA_VERSION,
        trials=_columns((*columns.BASE, *columns.FOLLOW_UP)),
        measurements=_columns(columns.declared_columns()),
        provenance=_columns((*columns.PROVENANCE, *columns.COMPARED)),
        flags=_table(["flag", "in reports", "value"], flags),
        purposes=_table(["purpose", "meaning"], PURPOSES.items()),
        steps=_columns(columns.STEP_COLUMNS),
        anatomy=_columns(columns.ANATOMY_COLUMNS),
        parts=_table(["part", "meaning"], PARTS.items()),
        frontier=_columns(columns.FRONTIER_COLUMNS),
        results=_fields(TuneResults),
        result=_fields(TuneResult),
        configuration=_fields(ResultConfiguration),
        search=_fields(BudgetResult),
    )


def _columns(listed: Iterable[Column]) -> str:
    rows = ([column.name, column.type, column.unit, column.doc] for column in listed)
    return _table(["column", "type", "unit", "meaning"], rows)


def _fields(kind: type) -> str:
    """The keys of a JSON object that a dataclass describes, with the first line of their docs."""
    fields = documented_fields(kind)
    rows = ([name, annotation, doc.partition("\n\n")[0]] for name, annotation, doc in fields)
    return _table(["key", "type", "meaning"], rows)


def _table(headings: list[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(grid(headings, (list(map(str, row)) for row in rows)))


if __name__ == "__main__":
    print(render(), end="")
