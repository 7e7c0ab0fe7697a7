"""TRL's Trainers as measured loops.

loop_techniques.py   their rows on the axis loop, and what plans and tables must know of them
parameters.py        the settings of TRL's configuration classes that a technique may set
raw_rows.py          rows and pairs of texts, chats or token ids, before their preparation
token_rows.py        token ids without padding; train.py gets copies of its functions
pair_rows.py         mistakes in rows of two answers, and prompts that these have in common
sft_rows.py          prepares the rows of SFTTrainer with TRL's code, before the training
sft_loop.py          the training with SFTTrainer
dpo_rows.py          prepares pairs of answers with TRL's code, before the training
reference_model.py   the model that DPO compares with; train.py gets copies of its functions
dpo_loop.py          the training with DPOTrainer
"""
