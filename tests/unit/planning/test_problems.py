"""Sentences about mistakes in a configuration file."""

import pytest

from orchestrator.planning.problems import ConfigError, Problem, advice, closest


@pytest.mark.parametrize(
    ("word", "choices", "meant"),
    [
        ("lroa", ["lora", "road"], "lora"),
        ("lroa", ["road", "lora"], "lora"),
        ("bf61", ["fp16", "bf16"], "bf16"),
        ("BF16", ["fp16", "bf16"], "bf16"),
        ("zzz", ["fp16", "bf16"], None),
        ("x", [], None),
    ],
)
def test_closest_of_equally_similar_words_is_the_transposed_one(word, choices, meant):
    assert closest(word, choices) == meant


def test_advice_asks_a_question_and_lists_the_choices_after_it():
    choices = ["fp32", "bf16"]
    assert advice("bf61", choices) == 'did you mean "bf16"? Valid choices: fp32, bf16'
    assert advice("int4", choices) == "valid choices: fp32, bf16"
    many = [f"choice_{number}" for number in range(20)]
    assert advice("choise_3", many) == 'did you mean "choice_3"?'


def test_error_with_very_many_mistakes_shows_some_and_counts_the_others():
    problems = [Problem(file="a.yaml", line=line, message="unknown") for line in range(1, 90_001)]
    lines = str(ConfigError(problems)).splitlines()
    assert len(lines) == 51
    assert lines[0] == "a.yaml:1: unknown"
    assert lines[-1] == "… and 89,950 more mistakes"


def test_shortened_name_is_meant_before_one_with_the_same_letters():
    assert (
        closest("AdamW", ["grokadamw", "adamw_torch_fused", "adamw_torch"]) == "adamw_torch_fused"
    )
