"""Mistakes that text and files can tell before the first trial. Read in this order:

model_configuration.py  the keys and values of a model's configuration, and what is wrong with them
checkpoints.py          folders and names of models and tokenizers
lengths.py              the sequence lengths that a configuration asks for
model_sizes.py          lengths, token ids and overrides against the model's positions and weights
data_columns.py         paths, columns and labels of the user's data
pairs.py                rows of a chosen and a rejected answer, for a preference training
data_file.py            the columns and the first rows of a data file
images.py               random images: their family, and their room for a text; damaged ones
sounds.py               random sounds: for which models they are known, and their transcripts
user_code.py            names and sources of the user's own code, read without an import
technique_requirements.py  what techniques need, as far as the configuration shows it
built_model.py          the size of the model, and the adapters that it cannot have
mistakes.py             all of the above together
"""
