import json

import numpy as np
import soundfile

from attune.audio.decode import read_utterance
from attune.corpora import ChunkedCorpus, open_corpus
from attune.sources import content_of


def test_a_long_recording_in_a_shard_is_cut_like_one_in_a_file_of_its_own(tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.2, 48_000)
    soundfile.write(tmp_path / "a.wav", np.concatenate([noise, np.zeros(16_000), noise]), 16_000)
    recording = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "shard.tar").write_bytes(b"x" * 700 + recording)
    rows = [
        {"id": "file", "audio": "a.wav", "text": "a"},
        {"id": "part", "audio": "shard.tar", "first_byte": 700, "byte_count": len(recording), "text": "a"},
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pieces = ChunkedCorpus(open_corpus("dev", [tmp_path / "m.jsonl"], tmp_path / "index"), 4.0)
    assert pieces.owners == [0, 0, 1, 1]
    heard = [read_utterance(pieces[each], content=content_of(pieces[each])) for each in range(4)]
    assert all(np.array_equal(*pair) for pair in zip(heard[:2], heard[2:], strict=True))
