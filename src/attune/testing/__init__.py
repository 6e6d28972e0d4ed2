"""Checks that a family or a task keeps its promises, and tiny real data to check them on. For plug-in authors too."""
