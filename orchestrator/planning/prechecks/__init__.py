"""Mistakes that text and files can tell before the first trial. Read in this order:

arguments_file.py       the user's own TrainingArguments, without what a measurement decides
configuration_class.py  the keys that an architecture's configuration knows, read from its source
model_keys.py           model.config checked against them
checkpoints.py          folders and names of models and tokenizers
positions.py            sequence lengths against the model's positions
data_columns.py         paths, columns and labels of the user's data
pairs.py                rows of a chosen and a rejected answer, for a preference training
images.py               random images: their family, and the room that they leave for a text
batch_shape.py          the tensors of one batch, from the text alone
model_size.py           the number of parameters, counted once in a process of its own
checks.py               all of the above together
"""
