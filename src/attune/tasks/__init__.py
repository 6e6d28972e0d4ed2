"""What can be learned, one file or folder each, exporting TASK."""
