"""The frontier search: Bayesian optimization over the configurations of a plan. Read in this order.

search.py              the loop: surrogate, pruning, acquisition, audit
initial_design.py      what is measured before there is a surrogate
surrogate.py           memory and speed of every candidate, with bounds
cost_model.py          one cost: the law of ``model``, and a Gaussian process around it
memory_correction.py   predicted memory, corrected by what is measured
similarity.py          the kernels
pruning.py             which candidates need not be measured
pruning_reasons.py     and why, in a sentence
acquisition.py         which candidate is measured next
audit.py               a random sample of the pruned ones, measured after all
"""
