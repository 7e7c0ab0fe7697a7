"""What traced operators compute and move."""

from collections.abc import Callable

import pytest
import torch

from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder


def _recorded(run: Callable[[], object]) -> dict[str, list[list[float]]]:
    recorder = AllocationRecorder()
    with recorder:
        recorder.stream()
        run()
    return {kind: rows.tolist() for kind, rows in recorder.stream().work.eager.by_kind.items()}


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(
            lambda: torch.mm(_empty(4, 8), _empty(8, 16)),
            {"bf16 products": [[2 * 4 * 8 * 16, 2 * (4 * 8 + 8 * 16 + 4 * 16), 1, 1, 4, 16, 8]]},
            id="product",
        ),
        pytest.param(
            lambda: torch.bmm(_empty(3, 4, 8), _empty(3, 8, 16)),
            {
                "bf16 products": [
                    [3 * 2 * 4 * 8 * 16, 3 * 2 * (4 * 8 + 8 * 16 + 4 * 16), 1, 3, 4, 16, 8]
                ]
            },
            id="batch of products",
        ),
        pytest.param(lambda: _empty(4, 8).t().view(8, 2, 2), {}, id="views run no kernel"),
        pytest.param(
            lambda: _empty(4, 1).expand(4, 8) * 2,
            {"elementwise": [[0, 2 * (4 + 4 * 8), 1, 0, 0, 0, 0]]},
            id="an expanded tensor is read once",
        ),
        pytest.param(
            lambda: _empty(8).add_(1),
            {"elementwise": [[0, 2 * 2 * 8, 1, 0, 0, 0, 0]]},
            id="in place: read and written",
        ),
        pytest.param(
            lambda: _empty(1000, 8).index_select(0, _empty(3, dtype=torch.int64)),
            {"rows": [[0, 2 * 2 * 3 * 8 + 3 * 8, 1, 0, 0, 0, 0]]},
            id="of a table, only what is taken is read",
        ),
    ],
)
def test_operator_is_counted_with_its_arithmetic_and_bytes(run, expected):
    assert _recorded(run) == expected


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.bfloat16, "bf16 grouped products"), (torch.float32, "fp32 grouped products")],
)
def test_groups_of_rows_are_multiplied_in_the_format_of_the_weights(dtype, kind):
    rows, weights = _empty(32, 16, dtype=dtype), _empty(4, 16, 24, dtype=dtype)
    ends = torch.empty(4, dtype=torch.int32, device="meta")
    found = _recorded(lambda: torch.ops.aten._grouped_mm(rows, weights, ends))
    assert found[kind][0][0] == 2 * 32 * 16 * 24


def test_causal_attention_computes_half():
    def attention(*, is_causal: bool) -> float:
        inputs = [_empty(1, 2, 64, 16) for _ in range(3)]
        operator = torch.ops.aten._scaled_dot_product_flash_attention
        found = _recorded(lambda: operator(*inputs, 0.0, is_causal))
        return found["bf16 flash attention"][0][0]

    assert attention(is_causal=False) == 2 * attention(is_causal=True) == 4 * 2 * 64 * 64 * 16


def test_rows_in_one_sequence_have_the_scores_of_their_own_keys():
    query, key, value = (_empty(96, heads, 16) for heads in (4, 2, 2))
    begins = torch.empty(4, dtype=torch.int32, device="meta")  # three rows of 32
    operator = torch.ops.aten._flash_attention_forward
    options = (begins, begins, 32, 32, 0.0, True, False)
    found = _recorded(lambda: operator(query, key, value, *options))
    scores = 96 * 4 * 32 // 2
    assert found["bf16 flash attention"][0][3] == scores
    assert found["bf16 flash attention"][0][0] == 2 * scores * 32


@pytest.mark.parametrize("is_masked", [False, True])
def test_mask_changes_every_score(is_masked):
    query, key, value = (_empty(1, 2, 64, 16) for _ in range(3))
    mask = _empty(1, 2, 64, 64) if is_masked else None
    operator = torch.ops.aten._scaled_dot_product_efficient_attention
    found = _recorded(lambda: operator(query, key, value, mask, compute_log_sumexp=True))
    assert found["bf16 efficient attention"][0][3:6] == [2 * 64 * 64, 0, is_masked * 2 * 64 * 64]


@pytest.mark.parametrize(("dropout", "drawn"), [(0.0, 0), (0.1, 2 * 64 * 64)])
def test_dropout_draws_a_number_for_every_score(dropout, drawn):
    inputs = [_empty(1, 2, 64, 16) for _ in range(3)]
    operator = torch.ops.aten._scaled_dot_product_flash_attention
    found = _recorded(lambda: operator(*inputs, dropout, is_causal=False))
    assert found["bf16 flash attention"][0][3:5] == [2 * 64 * 64, drawn]
