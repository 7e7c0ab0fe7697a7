"""Pages of docs/ that are made from the source.

config_reference.py  docs/configuration.md: every key of a config
schema_page.py       docs/schema.md: every column of the tables
generated_page.py    the templates of both
"""
