"""Several trainings or models at once: sweeps, cross-validation, SUPERB, n-grams and fusion weights."""
