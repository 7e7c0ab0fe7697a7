"""Planted faults in gradients, and configurations without one: ``python -m tests.gradients``."""
