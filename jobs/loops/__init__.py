"""The training loops that can be measured, and the meter that connects them to the trackers.

contract.py           what a loop gets (``Setup``), and what it returns (``Trained``)
meter.py              reports every step to the trackers, and ends the training
trainer.py            transformers.Trainer, metered
accelerate.py         a plain loop through Accelerate
trainer_arguments.py  a trial's settings as TrainingArguments of the installed transformers
accumulated_loss.py   what divides the loss of accumulated steps: corrects and checks it
row_order.py          which rows a loop trains on, and in which order
deepspeed.py          DeepSpeed without its launcher
"""
