"""The training loops that can be measured, and the meter that connects them to the trackers."""
