"""The batch-size search: one technique set on one GPU model. Read in this order.

batch_size_search.py  the loop: asks for one batch after another
measured_sizes.py     what was measured so far
largest_size.py       toward the largest micro-batch that fits
fastest_size.py       toward the fastest micro-batch, and the saturation
accumulation.py       toward an effective batch
"""
