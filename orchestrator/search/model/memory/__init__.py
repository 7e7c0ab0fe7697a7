"""The memory of every candidate.

memory_model.py        predicted and corrected by measurements, else a learnt curve
predicted_memory.py    predictions for all candidates, interpolated from those of a few
curve_choices.py       what the choices of each curve are expected to change
prediction_shortlist.py    the trials to predict, from which the memory of all others follows
"""
