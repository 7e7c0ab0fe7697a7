"""The keys of a file, one declaration each, in pydantic. Read in this order:

config_types.py    sections, sizes, durations and other values that are written in several ways
search_options.py  the kinds of search and their options
loggers.py         the experiment loggers and their arguments
config_data.py     the keys of the sections model and data
config_model.py    all keys, with their types and meanings
config_errors.py   the content typed by these models, or what is wrong with it in words
schema.py          the JSON schema that editors complete configs with
"""
