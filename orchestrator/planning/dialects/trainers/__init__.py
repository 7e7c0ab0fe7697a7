"""The tables: key of a trainer's file -> the facts about the training that it states.

tables.py   reads the tables, which are the YAML files here
"""
