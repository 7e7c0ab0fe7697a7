"""The answer search: the fastest configuration in each memory budget. Read in this order.

search.py              the search itself
questions.py           the decisions of the search: the next candidate, or to end
gain.py                how much faster an unmeasured candidate could be, and how likely that is
state.py               everything learnt from the records: speeds, memory, costs of trials, failures
cost_model.py          the posterior of one cost, time or memory, of every candidate
branch_laws.py         the law of a cost for few measurements
cost_prior.py          the prior covariance of this cost between candidates
curve_prior.py         the prior mean and covariance of the curves' parameters
interactions.py        pairs of techniques whose effects change each other
technique_priors.py    the expected effect of each technique, from recorded tables
similar_values.py      finds values of an axis with similar effects
unrecorded.py          the assumed effects of techniques without a recorded table
memory_model.py        the memory of every candidate: predicted and corrected, else a learnt curve
predicted_memory.py    predictions for all candidates, interpolated from those of a few
memory_line.py         the memory of a curve as a line, for techniques that cannot be predicted
worth_predicting.py    the trials to predict, from which the memory of all others follows
loaders.py             whether the GPU waits for data, and which data loaders need no trial
trial_cost.py          the expected slot time of a trial of each candidate
failures.py            the techniques that do not run on this model
budget_answer.py       the answer for one budget, as data
skip_reasons.py        the reason why a candidate was not measured

A candidate is a configuration of the plan, and a curve is a set of techniques at all micro-batches.
"""
