"""One file per normalizer, each exporting NORMALIZER: text to the text that is scored. Twice is as good as once."""
