"""The batches of a traced step, and their order.

batches.py           the shapes of its batches: synthetic samples, or a data file's rows
trl_batches.py       the batches of rows and pairs that TRL prepares
epoch_orders.py      the order in which an epoch and a trial have rows of unequal length
usual_step.py        the kernels of a usual step of such an epoch
"""
