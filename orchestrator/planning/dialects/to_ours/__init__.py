"""Facts about a training -> our configuration.

facts.py                the facts that all dialects share
chosen_axes.py          facts -> the values of our axes
model_shapes.py         the shapes of public models, by models.yaml
assembled.py            facts and a shape -> our configuration
"""
