"""The memory of every candidate.

memory_model.py        predicted and corrected by measurements, else a learnt curve
predicted_memory.py    predictions for all candidates, interpolated from those of a few
memory_line.py         the memory of a curve as a line, for techniques that cannot be predicted
prediction_shortlist.py    the trials to predict, from which the memory of all others follows
"""
