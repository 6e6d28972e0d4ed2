"""Real servers on this machine, each with the faults that networks have."""
