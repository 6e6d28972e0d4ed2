"""Audio files to samples, and samples to features."""
