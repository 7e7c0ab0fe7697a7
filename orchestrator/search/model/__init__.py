"""The posterior of one cost of every candidate: the time of a micro-batch, or its memory.

cost_model.py     the posterior, from the measured candidates
observations.py   the measured costs, as arrays
branch_laws.py    the law of a cost for few measurements
residual_kernel_of.py     the part of the costs that the law does not describe
cost_prior.py     the prior covariance of the cost between candidates
curve_prior.py    the prior mean and covariance of the curves' parameters
errors.py         how wrong the model is, by how far measurements are from what was expected
"""
