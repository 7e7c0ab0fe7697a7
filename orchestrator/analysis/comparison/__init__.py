"""Two runs of the same configurations: what changed between them beyond what chance explains.

two_runs.py  the comparison: matches configurations, and finds their changes
speed.py     changes of speed: of all rows, of techniques, of single configurations
changes.py   a comparison as data
"""
