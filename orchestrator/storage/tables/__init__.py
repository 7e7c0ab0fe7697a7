"""The Parquet tables of a run.

columns.py        the columns of every table, from columns.yaml
rows.py           makes rows of records
parquet.py        writes the tables
table_reader.py   reads and checks them
"""
