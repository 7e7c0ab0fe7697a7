"""Everything that watches the trials of a sweep: progress, log, metrics and experiment loggers."""
