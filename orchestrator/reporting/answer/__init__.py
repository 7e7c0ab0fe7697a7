"""What an answer search found, in words.

picks.py     the answer of ``tune``: the pick of each budget, and what it gains
evidence.py  what was considered, and what could still be gained
"""
