"""The pages of a report, each a function of a ``Summary``.

cells.py      points as cells of a table: figures, marks, what marks mean
anatomy.py    trials taken apart: tables of the frontier, data for the script
text.py       the printed end of a run
plain.py      the same as JSON
markdown.py   report.md
card.py       the dataset card of a run on the Hub
picture.py    frontier.png (matplotlib is here and in explanation_picture.py)
labels.py     where a picture's labels go so that none covers another
thinning.py   which of very many configurations report.html holds
columnar.py   the data of report.html: every configuration, column by column
html.py       report.html, from report.*.j2 (the only file with Bokeh and jinja2)
"""
