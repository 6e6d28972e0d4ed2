"""Launching: one process, ranks on this machine, torchrun, SLURM, MPI or Ray."""
