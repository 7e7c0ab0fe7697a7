"""Compares the gradients of a trial with those of the same weights in fp32, tensor by tensor.

check      the comparison of one optimizer step, and its result
reference  the same model in fp32 with plain attention, and its gradients
rounding   the errors that a number format explains, by random rounding
"""
