"""TRL's Trainers as measured loops.

parameters.py        the settings of TRL's configuration classes that a technique may set
config.py            the trial's settings as TRL's configuration
token_rows.py        token ids without padding, for functions that are copied into train.py
rows.py              prepares the rows of SFTTrainer with TRL's code, before the training
sft.py               the training with SFTTrainer
pairs.py             mistakes in rows of two answers, and prompts that these have in common
preference_rows.py   prepares pairs of answers with TRL's code, before the training
reference.py         the model that a preference training compares with
preference.py        the training with a preference trainer
facts.py             the columns about a preference training
"""
