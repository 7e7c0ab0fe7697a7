"""recommend: exit statuses and renamed flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import recommend
from tests.support.records import make_record, write_run


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run in which another training recipe is the fastest."""
    sgd = make_record(speed=400.0, optimizer="sgd", recipe={"optimizer": "sgd"})
    plain = make_record(speed=100.0, optimizer="adamw_torch_fused")
    return str(write_run(tmp_path, [sgd, plain]))


def test_recommend_exit_status_says_whether_anything_fits(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recommend.main([run, "--memory", "8GiB"]) == 0
    assert recommend.main([run, "--memory", "1MiB"]) == recommend.EXIT_NOTHING_FITS
    assert recommend.main([str(tmp_path / "none"), "--memory", "8GiB"]) == 2
    with pytest.raises(SystemExit, match="2"):
        recommend.main([run, "--objective", "dollars_per_million"])
    assert "needs --price-per-hour" in capsys.readouterr().err


def test_recommend_ranks_other_recipes_only_where_asked(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recommend.main([run])
    assert "  batch 4×1 · adamw_torch_fused: 100 samples/s" in capsys.readouterr().out
    recommend.main([run, "--all-training-recipes"])
    assert "other training recipe than the baseline: optimizer=sgd" in capsys.readouterr().out


@pytest.mark.parametrize("price", ["nan", "inf", "0", "-1"])
def test_recommend_refuses_a_price_that_is_no_number_above_zero(
    price: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        recommend.main(["run", "--objective", "dollars_per_million", f"--price-per-hour={price}"])
    assert "must be above zero" in capsys.readouterr().err
