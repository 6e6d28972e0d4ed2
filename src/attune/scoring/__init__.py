"""Scores from references and predictions: values in, `Scores` out. No torch and no files."""
