"""TRL's Trainers as measured loops.

loop_techniques.py   their rows on the axis loop, and what plans and tables must know of them
parameters.py        the settings of TRL's configuration classes that a technique may set
raw_rows.py          rows and pairs of texts, chats or token ids, before their preparation
sft_rows.py          prepares the rows of SFTTrainer with TRL's code, before the training
sft_loop.py          the training with SFTTrainer
dpo_rows.py          prepares pairs of answers with TRL's code, before the training
dpo_loop.py          the training with DPOTrainer
"""
