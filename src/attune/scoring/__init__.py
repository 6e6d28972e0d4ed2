"""Figures from references and hypotheses: plain text and numbers in, `Scores` out. No torch, no files, no normalizing."""
