"""Loss parity: finds the trials whose losses differ from those of a reference.

The reference has the same seed, data and effective batch. The mean losses of each half of the
training are compared, relative to the reference's mean loss over the whole training.

- Rows that draw the same random numbers differ only in how activations are kept or data is loaded.
  Their losses must be equal, apart from rounding.
- Another split of the batch, precision or kernel draws other dropout masks, and another loop orders
  the data differently. Their mean losses may differ by as much as the scatter of the reference's
  losses from step to step explains.

With few steps or small batches much is allowed. If a difference of more than 10 % would pass, the
state is "not checked"; a match names the smallest difference that it would have found. Most wrong
gradients leave the first losses as they are: those are found by jobs/trial/gradients.

loss_checks.py  the check of every row, and the rows whose losses it has to match
windows.py      the comparison of two trials
equivalence.py  recipes that are shown to train the same
"""
