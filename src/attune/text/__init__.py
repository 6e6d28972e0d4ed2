"""Text on its way in and out: normalizers before scoring, tokenizers between text and token ids."""
