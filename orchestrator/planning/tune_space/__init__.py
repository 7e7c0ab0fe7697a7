"""The configurations that ``tune`` searches. It makes them from all axes; the user names none.

policy.py      which axes and values are tried, as data
values.py      which values go with the user's model
combinations.py  which of them are combined, at which micro-batches
space.py       the configurations
"""
