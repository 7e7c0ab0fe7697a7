"""What is printed, and what must never reach a terminal as it is.

safe_text.py  control and bidi characters of foreign text, made visible; long texts cut
summary.py    the printed end of a run
"""
