"""What watches a sweep.

observer.py     the interface of an observer
progress.py     lines in the terminal
event_log.py    log.jsonl, a line per event
prometheus.py   metrics, through Ray's exporter
loggers/        TensorBoard, MLflow, Weights & Biases
"""
