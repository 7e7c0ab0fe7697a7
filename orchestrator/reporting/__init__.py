"""Every sentence, table, picture and page that a person reads.

content.py         what a section holds: sentences, and tables of plain values
sections/          the sections of a report, one file each
report.py          a run's data set with its sections filled in
configurations.py  configurations as rows: columns, marks, and what the marks mean
flags.py           flags in words
terminal/          renderers: the printed end of a run,
markdown.py        report.md,
json_output.py     JSON,
html/              report.html
plots/             pictures
publish.py         writes all of them, and the tables
dataset_card.py    the card of a run on the Hugging Face Hub
schema_page.py     docs/schema.md
tune_result.py     the result of tune, computed once and stored with the run
recommendation.py  what verbs print; so do comparison.py, explanation.py,
                   batch_size.py, dry_run.py and prediction.py
recommendation_notes.py
                   what to know before training with a recommendation
workload.py        a user's own training: its time, price and energy
config_reference.py  docs: every key of a config
"""
