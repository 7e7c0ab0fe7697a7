"""report.html: one file, no network, and queries that run."""

import base64
import hashlib
import json
import re
from html import unescape
from pathlib import Path

import pytest

from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.reporting.html import page
from orchestrator.reporting.publish import publish
from orchestrator.reporting.report import Report
from tests.support.records import make_grid, write_run


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("grid")
    return load_dataset(write_run(folder, make_grid(), budgets=[2**33]))


def test_page_asks_no_network_and_names_its_tables(dataset):
    html = page.render(Report(dataset=dataset))
    text = "".join(re.split(r"(?s)<script[^>]*>.*?</script>", html))
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert text.count("<table") == text.count("<caption")
    assert text.count("<h1") == 1
    assert "CUDA out of memory" in text
    assert len(re.findall(r' id="([^"]+)"', text)) == len(set(re.findall(r' id="([^"]+)"', text)))


def test_page_shows_the_front_without_a_script(dataset):
    html = page.render(Report(dataset=dataset))
    table = html.split('<table id="table"')[1].split("</table>")[0]
    assert "batch 256 · bf16" in table
    assert "Ranked: same training recipe as the baseline" in table
    assert "× the baseline&#39;s throughput" in html.split("<script")[0]


def test_policy_names_the_only_script_and_style(dataset):
    html = page.render(Report(dataset=dataset))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    for tag in ('script type="module"', "style"):
        (text,) = re.findall(rf"(?s)<{tag}>(.*?)</", html)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        kind = tag.split()[0]
        assert f"{kind}-src 'sha256-{digest}'" in policy.replace("&#39;", "'")
    assert policy.startswith("default-src &#39;none&#39;")
    assert "unsafe" not in policy


def test_bundle_has_every_module_once_and_no_imports():
    folder = Path(page.__file__).parent / "scripts"
    assert {path.stem for path in folder.glob("*.js")} == set(page.SCRIPTS)
    script = page.bundle(page.SCRIPTS)
    assert not re.search(r"(?m)^(import|export)\b", script)


def test_script_json_cannot_end_its_script():
    value = {"a": [float("nan"), float("inf"), 1.5, "</script>&\u2028"]}
    text = page.script_json(value)
    assert text == '{"a":[null,null,1.5,"\\u003c/script\\u003e\\u0026\\u2028"]}'
    assert json.loads(text)["a"][3] == "</script>&\u2028"


def test_queries_find_the_fastest_within_the_budget(tmp_path, monkeypatch):
    import duckdb
    import polars

    dataset = publish(write_run(tmp_path, make_grid())).dataset
    monkeypatch.chdir(tmp_path)
    shown = page.render(Report(dataset=dataset)).split('id="queries"')[1]
    codes = re.findall(r"(?s)<code>(.*?)</code>", shown)
    in_sql, in_polars = (unescape(re.sub("<.*?>", "", code)) for code in codes)
    rows = duckdb.sql(in_sql).fetchall()
    within = [own for own in dataset.main.configurations if own.memory_bytes <= 24 * 2**30]
    best = max(own.samples_per_second for own in within)
    assert len(rows) == 10
    assert best in rows[0]
    table = eval(in_polars.split("\n\n", 1)[1], {"pl": polars})
    assert table["samples_per_second"].to_list()[0] == best
