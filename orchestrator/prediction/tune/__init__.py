"""What ``tune`` would find, forecast from few traces.

depths.py         models with many equal layers, from traces of a few
tune_forecast.py  the fastest configurations of tune's space
"""
