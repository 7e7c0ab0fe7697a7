"""Why one trial is faster than another, or needs less memory.

two_trials.py   finds both trials, and lists what ran differently
result.py       an explanation as data
"""
