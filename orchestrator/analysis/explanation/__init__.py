"""Why one trial is faster than another, or needs less memory.

two_trials.py   finds both trials, and lists what ran differently
breakdowns.py   the difference in time and memory, in parts that add up to it
result.py       an explanation as data
"""
