"""TRL's ``SFTTrainer`` as a measured loop.

parameters.py   which settings of ``SFTConfig`` a technique takes
config.py       the trial's settings as an ``SFTConfig``
token_rows.py   token ids without padding; each function stands alone
rows.py         the rows as TRL's own code prepares them, before the training
sft.py          the training
"""
