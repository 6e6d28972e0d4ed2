"""Search: from what a model scores to what was said, one module for each kind of scorer."""
