"""Recognition while the speaker speaks: where utterances begin and end, and which words are certain already."""
