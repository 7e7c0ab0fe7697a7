"""The frontier search: Bayesian optimization over the configurations of a plan. Read in this order.

search.py              the loop: surrogate, pruning, acquisition, audit
candidates.py          the plan as candidates on curves along the micro-batch
measurements.py        what was measured of a candidate
plan_state.py          which trials are open, outstanding or ended
initial_design.py      what is measured before there is a surrogate
surrogate.py           memory and speed of every candidate, with bounds
cost_model.py          one cost: a physical law, and a Gaussian process around it
cost_law.py            the law
parameter_fit.py       its parameters, fitted
noise_scales.py        its misfit and noise, selected by likelihood
hyperparameters.py     the numbers behind these
memory_correction.py   predicted memory, corrected by what is measured
similarity.py          the kernels
arrays.py              array types, numbering, rounding
technique_knowledge.py what is expected of techniques, as data
pruning.py             which candidates need not be measured
pruning_reasons.py     and why, in a sentence
acquisition.py         which candidate is measured next
audit.py               a random sample of the pruned ones, measured after all
"""
