"""The pages of a report, each a function of a ``Summary``.

text.py       the printed end of a run
markdown.py   report.md
picture.py    frontier.png (the only file with matplotlib)
html.py       report.html, from report.{html,css,js}.j2 (the only file with plotly and jinja2)
"""
