import json

from attune.site import Site
from attune.sources import Cache
from attune.stages.prepare import TokenizerRequest, learn_tokens
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer


def test_times_in_a_text_are_no_text_to_learn_tokens_from(tmp_path):
    rows = [{"id": str(n), "seconds": 0, "text": f"<|0.0{n}|>go on<|1.20|>"} for n in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    site = Site(Cache(tmp_path / "cache"), 0)
    learned = learn_tokens([str(tmp_path / "a.jsonl")], tmp_path / "a.model", TokenizerRequest("bpe", 8), site)
    assert learned.texts == 5
    pieces = SentencePieceTokenizer.read(tmp_path / "a.model")
    assert pieces.decode(pieces.encode("0 go")) == "\N{REPLACEMENT CHARACTER} go"
