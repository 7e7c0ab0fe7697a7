"""Random sounds: for which models they are known, and whether they have room for a transcript."""

from dataclasses import replace

from jobs.tasks import SPEECH
from jobs.trial.sound_shapes import sound_shape
from orchestrator.planning.prechecks.lengths import sequence_lengths
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.problems import KeyProblems
from orchestrator.planning.settings import SweepConfig


def sound_problems(config: SweepConfig, configuration: ModelConfiguration) -> KeyProblems:
    """The problems of random sounds: the path of a key, and a sentence."""
    data, task = config.data.synthetic, config.model.task
    if data is None or task not in SPEECH:
        return
    at = ("data", "synthetic")
    for name in ("lengths", "padding"):
        if getattr(data, name):
            yield (*at, name), "random sounds and their transcripts have one length"
    if configuration.known is None:
        return
    positions = configuration.value("max_target_positions")
    for key, length in sequence_lengths(config):
        if positions and length > positions:
            yield key, f"is {length} tokens, and the model's decoder has {positions} positions"
        try:
            sound = replace(data, sequence_length=length)
            sound_shape(sound, task, configuration.model_type, configuration.value)
        except ValueError as error:
            yield key, str(error)
