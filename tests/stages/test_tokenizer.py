import json

import pytest

from attune.errors import DataError
from attune.site import Site
from attune.sources import Cache
from attune.stages.prepare import TokenizerRequest, learn_tokens
from attune.studies.ngrams import NGramRequest, estimate_ngrams
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer


def test_times_in_a_text_are_no_text_to_learn_tokens_from(tmp_path):
    rows = [{"id": str(n), "seconds": 0, "text": f"<|0.0{n}|>go on<|1.20|>"} for n in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    site = Site(Cache(tmp_path / "cache"), 0)
    learned = learn_tokens([str(tmp_path / "a.jsonl")], tmp_path / "a.model", TokenizerRequest("bpe", 8), site)
    assert learned.texts == 5
    pieces = SentencePieceTokenizer.read(tmp_path / "a.model")
    assert pieces.decode(pieces.encode("0 go")) == "\N{REPLACEMENT CHARACTER} go"


def test_texts_whose_rows_are_bad_are_not_left_out_without_a_word(tmp_path):
    rows = [{"id": "1", "text": "one two"}, {"id": "2", "audio": "gone.wav", "seconds": 1.0, "text": "three"}]
    manifest = tmp_path / "train.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    site = Site(Cache(tmp_path / "cache"), 0)
    refused = pytest.raises(
        DataError, match=r"1 bad row out of 2:\n.*train\.jsonl:2: missing audio file.*\nFix them, or"
    )
    with refused:
        learn_tokens([str(manifest)], tmp_path / "tokens.model", TokenizerRequest("bpe", 20), site)
    with refused:
        estimate_ngrams(NGramRequest((str(manifest),), 2), tmp_path / "lm.arpa", site)
