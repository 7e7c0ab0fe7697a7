"""What techniques are expected to change, before any measurement.

technique_priors.py    the expected effect of each technique, from recorded tables
technique_priors.json  these effects; ``python -m tests.benchmarks.technique_priors`` writes them
similar_values.py      finds values of an axis with similar effects
unrecorded.py          assumed effects of techniques, and of pairs, without a recorded table
"""
