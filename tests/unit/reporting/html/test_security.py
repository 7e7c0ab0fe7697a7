"""The page's content security policy."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.html import page
from orchestrator.reporting.html.security import content_security_policy
from orchestrator.reporting.report import Report
from tests.support.records import make_record, write_run


def test_policy_allows_scripts_by_their_hashes_only() -> None:
    policy = content_security_policy(["let a = 1;"])
    digest = base64.b64encode(hashlib.sha256(b"let a = 1;").digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_policy_of_the_page_matches_its_script(tmp_path: Path) -> None:
    dataset = load_dataset(write_run(tmp_path, [make_record()]))
    html = page.render(Report(dataset=dataset))
    (script,) = re.findall(r'(?s)<script type="module">(.*?)</script>', html)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert f"sha256-{digest}" in policy.replace("&#39;", "'")
