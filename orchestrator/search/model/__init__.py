"""The performance model: one cost of every candidate, the time of a micro-batch or its memory.

candidates.py           groups the plan's configurations into curves
measurements.py         the memory that a candidate needs, and the speed that it reaches
cost_line.py            a cost along a curve, between and beyond the micro-batches where it is known
observations.py         the measured costs as arrays, and which branch of the model they show
performance_model.py    the performance model of a cost
parameter_fit.py        its most probable parameters
curve_prior.py          the prior means and covariances of the parameters
cost_prior.py           the prior covariance of the cost between candidates
posterior.py            the posterior of the cost
error_scales.py         how wrong the model is: discrepancies of the model, noise, and outliers
hyperparameters.py      the numbers that are chosen before any measurement
arrays.py               array types, and rounding that keeps decisions equal on every machine
effects/                what techniques are expected to change
memory/                 the memory of every candidate, predicted and measured

A candidate is a configuration of the plan, and a curve is a set of techniques at all micro-batches.
"""
