"""Pictures, drawn by matplotlib.

style.py           colours, and a figure as PNG
encoding.py        what colours, markers and labels stand for
frontier.py        frontier.png: memory against speed
point_labels.py    which configurations of the front it names, and where
breakdown_bars.py  where two trials' memory and time went, and their losses
"""
