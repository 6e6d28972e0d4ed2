"""Who runs a stage: this process alone, or several ranks of it."""
