"""Pictures, drawn by matplotlib.

style.py            colours, and a figure as PNG
frontier.py         frontier.png: memory against speed
labels.py           which configurations of the front it names, and where
explanation.py      where two trials' memory and time went, and their losses
"""
