"""The dataset card: the Hub's viewer finds the tables, a reader the report."""

import yaml

from orchestrator.reporting.markdown import dataset_card
from orchestrator.reporting.publish import publish
from tests.support.records import make_record, write_run


def test_card_names_the_tables_and_holds_the_report(tmp_path):
    report = publish(write_run(tmp_path, [make_record()]))
    card = dataset_card(report, "hf://datasets/me/runs/bert")
    _, header, text = card.split("---\n", 2)
    about = yaml.safe_load(header)
    assert about["pretty_name"] == "synthetic on NVIDIA H200"
    defaults = {config["config_name"]: config.get("default") for config in about["configs"]}
    assert len(defaults) == 4
    assert defaults["trials"]
    assert "### Pareto front" in text
    assert 'load_dataset("me/runs", "trials"' in text
