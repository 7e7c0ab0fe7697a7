"""The wing of fine-tuning: what only some trainings need, in reach by the registry alone.

No other package imports from here. ``jobs.techniques`` loads the modules with axes, rows and hooks,
by their names in its list. Others are imported when a hook is first asked for.

adapters.py          the axis adapter: LoRA, and all other methods of PEFT
frozen_base.py       the axis base: the format of the weights below an adapter
quantized_base.py    builds a base in 8 or 4 bits
trained_weights.py   the axis trainable: which of the model's own weights are trained
qat.py               the axis qat: training for a quantization to come
muon.py              Muon, a row of the axis optimizer
weighted_loss.py     losses that weight each token, rows of the axis loss
trl/                 the loops of TRL's SFTTrainer and DPOTrainer, and the rows as TRL prepares them
vision/              vision-language models: frozen towers, random images, and the user's images
user_code/           the user's own Trainer, callbacks and collator
"""

# The registry loads the modules of this package in its order, whichever is imported first.
import jobs.techniques  # noqa: F401
