"""Which trial next: ask/tell, pure, replayable against a recorded table. No Ray, no GPU, no clock.

base.py     the interface
grid.py     every planned trial, in order
"""
