"""Which steps stand for an epoch of rows of unequal length, and what its mean step takes."""

import numpy as np
import pytest

from jobs.ragged_steps import NEW_SHAPE_SPREAD, RaggedSteps

LENGTHS = np.random.default_rng(5).lognormal(6, 0.8, 2_000).clip(1, 2_048).astype(int)


def steps_of(
    lengths=LENGTHS, micro_batch=2, accumulation=1, warmup=2, counted=10, **choices
) -> RaggedSteps:
    return RaggedSteps(
        [lengths],
        [lengths],
        micro_batch=micro_batch,
        accumulation=accumulation,
        warmup_steps=warmup,
        counted_steps=counted,
        **{"joins_rows": False, **choices},
    )


def positions_of(rows, micro_batch=2, joins_rows=False):
    batches = LENGTHS[np.asarray(rows)].reshape(-1, micro_batch)
    return batches.sum(1) if joins_rows else micro_batch * batches.max(1)


def test_each_counted_step_is_met_in_the_warm_up():
    ragged = steps_of()
    rows = np.reshape(ragged.rows(range(2_000)), (-1, 2))
    assert (ragged.distinct, ragged.warmup_steps) == (4, 5)
    assert len(rows) >= ragged.warmup_steps + 10
    assert len({tuple(step) for step in rows}) == 5
    np.testing.assert_array_equal(rows[1:5], rows[5:9])
    # The longest first, and a typical one last.
    tokens = LENGTHS[rows[1:5]].sum(1)
    assert tokens.argmax() == 0
    assert min(tokens) < tokens[-1] < max(tokens)


@pytest.mark.parametrize(
    ("choices", "distinct"),
    [
        ({"accumulation": 8}, 4),
        ({"counted": 2}, 2),
        ({"counted": None}, 0),
        ({"micro_batch": 500}, 4),
        ({"micro_batch": 4_000}, 0),
    ],
)
def test_distinct_steps_are_limited_by_what_there_is(choices, distinct):
    ragged = steps_of(**choices)
    assert ragged.distinct == distinct
    assert ragged.warmup_steps == max(2, distinct and distinct + 1)


def test_whole_epoch_keeps_its_order():
    ragged = steps_of(counted=None)
    assert ragged.rows([5, 3, 9, 1]) == [5, 3, 9, 1]
    assert ragged.at_mean([1.0, 2.0, 4.0, 8.0], 0) == [1.0, 2.0, 4.0, 8.0]


def test_equal_effective_batches_train_on_the_same_rows():
    epoch = np.random.default_rng(1).permutation(2_000).tolist()
    splits = [
        steps_of(micro_batch=micro_batch, accumulation=8 // micro_batch).rows(epoch)
        for micro_batch in (8, 4, 2)
    ]
    assert splits[0] == splits[1] == splits[2]


def test_padding_share_counts_positions_up_to_the_longest_row_of_each_batch():
    lengths = np.array([1, 4, 2, 2])
    ragged = steps_of(lengths)
    ragged.rows([0, 1, 2, 3])
    assert ragged.padding_share == pytest.approx(1 - 9 / 12)
    joined = steps_of(lengths, joins_rows=True)
    joined.rows([0, 1, 2, 3])
    assert joined.padding_share == 0.0


def test_padding_share_of_pairs_counts_both_answers_up_to_the_longer_one():
    answers = [np.array([9, 3]), np.array([2, 8])]
    ragged = RaggedSteps(
        answers, answers, micro_batch=2, accumulation=1, joins_rows=False, warmup_steps=2,
        counted_steps=3,
    )  # fmt: skip
    ragged.rows([0, 1])
    # Of 2 pairs with at most 9 tokens an answer, 22 of 36 positions are tokens.
    assert ragged.padding_share == pytest.approx(1 - 22 / 36)
    assert (ragged.longest_row, ragged.mean_row) == (9, 5.5)


@pytest.mark.parametrize("joins_rows", [False, True])
@pytest.mark.parametrize(
    "seconds_of",
    [
        lambda positions: np.full(len(positions), 0.2),  # the host sets the pace
        lambda positions: 0.05 + 2e-4 * positions,
        lambda positions: 0.05 + 1e-4 * positions + 1e-8 * positions**2,
        lambda positions: np.maximum(0.3, 2e-4 * positions),
    ],
)
def test_mean_step_is_that_of_the_epoch_whatever_was_drawn(seconds_of, joins_rows):
    truth, found = [], []
    for seed in range(20):
        epoch = np.random.default_rng(seed).permutation(2_000).tolist()
        ragged = steps_of(joins_rows=joins_rows)
        measured = seconds_of(positions_of(ragged.rows(epoch)[10:18], joins_rows=joins_rows))
        truth.append(seconds_of(positions_of(epoch, joins_rows=joins_rows)).mean())
        found.append(np.mean(ragged.at_mean(measured, 5)))
    assert found == pytest.approx(truth, rel=0.05)


def test_spread_of_steps_is_what_their_lengths_do_not_explain():
    ragged = steps_of()
    positions = positions_of(ragged.rows(range(2_000)))[5:15]
    exact = ragged.at_mean(0.1 + 1e-4 * positions, 5)
    assert np.ptp(exact) < 1e-6
    noise = np.random.default_rng(2).normal(1, 0.02, len(positions))
    disturbed = ragged.at_mean((0.1 + 1e-4 * positions) * noise, 5)
    assert np.std(disturbed) / np.mean(disturbed) == pytest.approx(0.02, rel=0.5)


def test_tokens_and_samples_are_those_of_the_mean_step():
    texts = np.random.default_rng(3).integers(1, 9, len(LENGTHS))
    ragged = steps_of(samples=texts)
    rows = np.asarray(ragged.rows(range(2_000))[10:18])
    positions, tokens, samples = ragged.expected(5, 4)
    assert positions * positions_of(rows).mean() == pytest.approx(positions_of(range(2_000)).mean())
    assert tokens * LENGTHS[rows].sum() / 4 == pytest.approx(2 * LENGTHS.mean())
    assert samples * texts[rows].sum() / 4 == pytest.approx(2 * texts.mean())
    assert steps_of().expected(5, 4)[-1] == 1


FIRST_TURN, SECOND_TURN = [1.2, 2.2, 3.2, 7], [1, 2, 3, 4]
"""Seconds. The last step of the first turn is inspected."""
LOADED = 9
"""Seconds of the first step, which loads what all lengths need."""


def test_new_shapes_cost_what_the_second_turn_did_not_take():
    lengths = np.repeat(np.arange(10, 26), 2)
    ragged = steps_of(lengths, counted=6)
    ragged.rows(range(32))
    price = 0.2
    found, half_width = ragged.new_shapes([LOADED, *FIRST_TURN, *SECOND_TURN])
    # An epoch of 16 steps has 16 lengths.
    assert found == pytest.approx(price)
    # scipy.stats.t.ppf(0.975, 4) is 2.7764; the prior spread alone, as one of four degrees.
    assert half_width == pytest.approx(2.7764 * NEW_SHAPE_SPREAD * price / 4, rel=1e-3)


@pytest.mark.parametrize("third", [0.46, 2.1])
def test_loads_in_a_turn_are_no_price(third):
    ragged = steps_of(np.repeat(np.arange(10, 26), 2), counted=6)
    ragged.rows(range(32))
    # The seconds of the first trial on a machine whose disk had not read its kernels.
    found, _ = ragged.new_shapes([6.66, 2.39, 1.99, third, 0.44, 0.16, 0.18, 0.20, 0.19])
    assert found == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(("second", "is_wider"), [(6.2, False), (2.0, True)])
def test_what_is_loaded_with_one_length_is_no_price_and_no_spread_of_prices(second, is_wider):
    ragged = steps_of(np.repeat(np.arange(10, 26), 2), counted=6)
    ragged.rows(range(32))
    usual = ragged.new_shapes([LOADED, *FIRST_TURN, *SECOND_TURN])
    found = ragged.new_shapes([LOADED, 1.2, second, 3.2, 7, *SECOND_TURN])
    assert found[0] == pytest.approx(usual[0])
    assert (found[1] > 2 * usual[1]) == is_wider


def test_padding_to_a_multiple_leaves_fewer_shapes():
    lengths = np.arange(1, 65)
    shares = []
    for multiple in (1, 64):
        ragged = steps_of(lengths, micro_batch=1, counted=6, pad_to_multiple_of=multiple)
        ragged.rows(range(64))
        shares.append(ragged.new_shapes([LOADED, *FIRST_TURN, *SECOND_TURN])[0])
    assert shares == [pytest.approx(0.2), 0.0]
    assert ragged.padding_share == pytest.approx(1 - lengths.mean() / 64)


def test_new_shapes_that_cost_nothing():
    ragged = steps_of(counted=4)
    ragged.rows(range(2_000))
    assert ragged.new_shapes([9, 9, 1, 1, 1, 1, 2, 2, 2, 2])[0] == 0.0
