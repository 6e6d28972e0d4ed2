"""Arithmetic that torch has no operation for: exact, lean, the same on every device."""
