"""report.html: one page with its data, its style and its script.

page.py           the page, from page.html.j2, page.css and scripts/
section.html.j2   how any section of the report is written
chart_data.py     the data of the page's script, column by column
decisions.py      what recommend answers, at every memory budget; anatomies, and why pairs differ
scripts/          state.js and choice.js hold what the reader chose and what follows; plot.js draws
                  a chart's specification; the others show a part of the page each
"""
