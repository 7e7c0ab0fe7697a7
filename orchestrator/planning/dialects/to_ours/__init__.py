"""Facts about a training -> our configuration.

facts.py                the facts that all dialects share
axes.py                 facts -> the values of our axes
models.py, models.yaml  the shapes of public models
assembled.py            facts and a shape -> our configuration
"""
