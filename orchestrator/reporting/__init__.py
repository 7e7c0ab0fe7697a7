"""Every sentence, table, picture and page that a person reads.

content.py              what a section holds: sentences, and tables of plain values
sections/               the sections of a report, one file each
report.py               a run's data set with its sections filled in
publish.py              writes a report in every form, and the tables
markdown.py, html/, plots/, terminal/, json_output.py
                        the forms: report.md, the card of a run on the Hugging Face Hub,
                        report.html, pictures, what is printed, and JSON
configurations.py       configurations as rows: columns, marks, and what the marks mean
flags.py                flags in words
recommendation_notes.py what to know before training with a recommendation
verbs/                  what the other verbs print
reference/              pages of docs/ that are made from the source
"""
