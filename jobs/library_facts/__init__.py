"""What the installed libraries know, as plain data: for planning, which imports none of them.

__main__.py         the process that planning asks: questions as JSON, answers as JSON
collected.py        the facts of transformers, PEFT, TRL, Liger and torch, by importing them
value_types.py      the types of parameters as JSON values, and whether a value is of such a type
model_size.py       a model built without memory: its parameters, whether it takes an adapter
"""
