"""Pictures, drawn by matplotlib.

style.py           axes, colours and markers, and a figure as PNG
frontier.py        frontier.png: memory against speed
point_labels.py    which configurations of the front it names, and where
breakdown_bars.py  where two trials' memory and time went, and their losses
"""
