"""Pictures, drawn by matplotlib.

style.py           axes, colours and markers, and a figure as PNG
frontier.py        frontier.png: memory against speed
point_labels.py    which configurations of the front it names, and where
"""
