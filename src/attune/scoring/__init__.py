"""Figures from references and hypotheses: text in, `Scores` out. No torch and no files."""
