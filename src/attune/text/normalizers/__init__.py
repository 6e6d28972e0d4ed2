"""One file per normalizer, each exporting NORMALIZER: text → the text that is scored. Applying one twice changes nothing."""
