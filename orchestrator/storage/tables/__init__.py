"""The Parquet tables of a run.

columns.py        the columns of every table, from columns.yaml
rows.py           makes rows of records
trial_table.py    a run's trials as rows, from records or from a file; profiles as rows
parquet.py        writes the tables
table_reader.py   reads and checks them
"""
