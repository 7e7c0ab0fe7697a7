"""TRL's ``SFTTrainer`` as a measured loop.

parameters.py   the settings of ``SFTConfig`` that a technique may set
config.py       the trial's settings as an ``SFTConfig``
token_rows.py   token ids without padding, for functions that are copied into train.py
rows.py         prepares the rows with TRL's code, before the training
sft.py          the training
"""
