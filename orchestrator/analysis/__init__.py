"""What follows from a run's rows, as data without sentences.

dataset.py              a run's results as one object, which all readers share
configuration.py        repeats of one configuration, combined
environment_results.py  the configurations of one environment, and what follows from them
recommendation/         the best configuration under constraints
budget_picks.py         the fastest configuration within each memory budget
pareto.py               the Pareto front
grouping.py             items grouped by a key
objectives.py           the figures to rank by
repeatability.py        by how much two trials of one configuration can differ
follow_up_results.py    picks measured again with less memory, and close configurations in turns
gradient_results.py     picks whose gradients were compared with fp32
baseline.py             what techniques are compared with
technique_effects.py    what each technique changes
gain_over_default.py    a candidate against the baseline
loss_parity/            trials whose losses differ from those of their reference
comparison/             two runs
explanation/            two trials of one run
profiles.py             which profile belongs to which configuration
batch_size_answer.py    which batch to train with
card_prices.py          the cheapest card that a trial runs on
"""
