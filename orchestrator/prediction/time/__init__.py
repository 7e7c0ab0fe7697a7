"""Seconds of a training step on a card, forecast without one.

operations.py  the kernels of a step: what each computes and moves
fusion.py      what a compiler makes of them
tiles.py       what tiles add to the time of a matrix product
step_work.py   those of a step, from the traced parts that it repeats
step_time.py   seconds on a card; learned efficiencies are in efficiencies.yaml
shared_work.py what a rank computes and exchanges
links.py       seconds of what GPUs exchange
ranks_time.py  seconds of a step that several GPUs share
"""
