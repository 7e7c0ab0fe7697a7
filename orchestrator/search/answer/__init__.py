"""The answer search: the fastest configuration in each memory budget. Read in this order.

search.py              the search itself
questions.py           what it decides: the next candidate, or that it may end
gain.py                what measuring more could still gain, with which probability
state.py               what was learnt: speeds, memory, costs of trials, failures
cost_model.py          one cost of every candidate, from few measurements
cost_prior.py          its covariance between candidates
curve_prior.py         what curves are expected to have in common
technique_priors.py    what techniques are expected to do, from recorded tables
memory_model.py        memory as predicted and corrected, else a learnt curve
predicted_memory.py    predictions for all candidates, from predictions of a few
trial_cost.py          what a trial of each candidate takes
failures.py            which techniques run on this model
budget_answer.py       the answer for one budget, as data
skip_reasons.py        why a candidate was not measured
"""
