"""Text processing: normalizers, tokenizers, timestamps."""
