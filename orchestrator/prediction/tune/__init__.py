"""What ``tune`` would find, forecast from few traces.

depths.py           models with many equal layers, from traces of a few
compiled_memory.py  the activations that a compiler saves of these layers
tune_forecast.py    the fastest configurations of tune's space
"""
