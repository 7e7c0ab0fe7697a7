"""The search: the fastest configuration in each memory budget. Read in this order.

search.py           the search itself
front.py            the same at every memory: the Pareto front
audit.py            its check: some skipped candidates, measured after all
budget_queries.py   its decisions: the next candidate, or to end
stopping_rule.py    when the search ends, and how long a trial may take
gain.py             how much faster an unmeasured candidate could be, and how likely that is
state.py            everything learnt from the records: speeds, memory, costs of trials, failures
plan_state.py       which trials of the plan are open, outstanding or ended
data_loaders.py     whether the GPU waits for data, and which data loaders need no trial
trial_cost.py       the expected slot time of a trial of each candidate
failures.py         the techniques that do not run on this model
skip_reasons.py     the reason why a candidate was not measured

A candidate is a configuration of the plan, and a curve is a set of techniques at all micro-batches.
"""
