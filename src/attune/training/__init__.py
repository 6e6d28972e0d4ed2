"""The training engine: one loop, schedules as functions, exact sums, complete checkpoints."""
