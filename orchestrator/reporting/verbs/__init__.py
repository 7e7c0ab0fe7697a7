"""What verbs print, as text and as JSON.

tune_result.py     tune: its result, computed once and stored with the run
tune_advance.py    what its best changes and gains over the user's own arguments
tune_text.py       the same as lines of text
recommendation.py  recommend; recommendation_json.py for --json
comparison.py      compare
explanation.py     explain
batch_size.py      batch_size
prediction.py      predict for one GPU; card_table.py for many, forecast_text.py for --tune
dry_run.py         sweep --dry-run
translation.py     init --from
"""
