"""Where the time of a step went.

operations.py   by kind of operation, in the three groups of the Hugging Face guide
phases.py       by what the loop did: compute, data wait, launch-bound idle, logging
"""
