"""The training loops that can be measured; each is ``train(setup) -> Trained`` and tells the meter what it does."""
