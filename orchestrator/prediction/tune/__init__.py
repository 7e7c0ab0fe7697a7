"""What ``tune`` would find, forecast from few traces.

traced_sets.py      the largest micro-batches that fit, of sets that share a trace
tune_forecast.py    the fastest configurations of tune's space
worth_tracing.py    which ways to run a model are traced for it
"""
