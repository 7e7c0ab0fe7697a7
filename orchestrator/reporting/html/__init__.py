"""report.html: one page with its data and its script.

page.py           the page, from report.*.j2 (the only file with Bokeh and jinja2)
chart_data.py     the data of the page's script, column by column
anatomy_data.py   the same of one anatomy
downsampling.py   which of very many configurations the page shows
"""
