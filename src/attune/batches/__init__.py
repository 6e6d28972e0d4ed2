"""From utterances to batches: the plan says which, the loader reads them."""
