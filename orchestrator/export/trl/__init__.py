"""Exports trainings of TRL: the values for train.py and its settings, and the templates for them.

sft_code.py                what SFTTrainer needs beside the Trainer's code
preference_code.py         what the trainers of answer pairs need
train.*.j2                 parts of train.py for these loops
"""
