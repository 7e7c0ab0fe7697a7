"""The user's own code: found and hashed without an import, imported only if the user allows it.

sources.py   where the modules are, what they define, and the digest of their sources
objects.py   imports the objects and checks their types
probe.py     does that in a process of its own, before the first trial
"""
