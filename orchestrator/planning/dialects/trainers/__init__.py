"""The tables: key of a trainer's file -> the facts about the training that it states.

rule.py     one row of a table: a fact, or why the key is left out
tables.py   reads the tables, which are the YAML files here
"""
