"""Why the search did not measure a configuration, in a sentence."""

from collections.abc import Mapping

OTHER_RECIPE = "other_recipe"
DOES_NOT_RUN = "does_not_run"
TOO_LARGE = "out_of_memory_below"
DOES_NOT_FIT = "does_not_fit"
CANNOT_GAIN = "cannot_gain"
OUT_OF_TIME = "search_time"

_REASONS: Mapping[str, str] = {
    OTHER_RECIPE: "It trains differently from the baseline; search: {kind: best, any_recipe: "
    "true} measures it, too.",
    DOES_NOT_RUN: "A technique of it, or a smaller batch, failed here, or needs what this machine "
    "lacks.",
    TOO_LARGE: "A smaller micro-batch of the same techniques ran out of memory.",
    OUT_OF_TIME: "It could be faster than what was measured, but the search's GPU time is up.",
    DOES_NOT_FIT: "It is predicted to need more memory than every budget.",
}


def reason_of(rule: str, regret: float) -> str:
    """The sentence for a rule. ``regret`` is that of the search."""
    if rule == CANNOT_GAIN:
        return (
            f"Each budget has a measured configuration, and the fastest other one is expected to "
            f"gain less than {regret:.3g} of its speed."
        )
    return _REASONS[rule]
