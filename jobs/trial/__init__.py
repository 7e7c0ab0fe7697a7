"""One trial in its own process, from a spec to a record.

run               the order of everything; the only entry point
requirements      whether this node can run the trial at all
assembly          data, arguments, model and optimizer for a training loop
models            the model and its configuration
data/             the dataset: random samples, or the user's file
sound_shapes      what a speech model takes for a sound
gradients/        whether the gradients are those of the same weights in fp32
row_isolation     whether rows that stand in one sequence attend to each other
effective_config  asked for X, got Y: settings read back from the trained objects,
effective_code    ... the code that really ran,
weight_formats    ... and the formats that the weights are really in
upkeep_peaks      the memory of an evaluation and of saving a checkpoint
trial_columns     what follows from several trackers together
"""
