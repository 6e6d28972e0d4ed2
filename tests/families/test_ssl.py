import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from attune.batches.load import Reader
from attune.corpora import open_manifest
from attune.decoding.search import Search, search
from attune.families.ssl import FAMILY, SslConfig
from attune.tasks.classify import Classify, ClassifyConfig
from attune.tasks.transcribe import CtcHeadConfig, Transcribe, TranscribeConfig
from attune.testing import check_family, make_corpus

from tiny import batch_of

SMALL = TranscribeConfig(head=CtcHeadConfig(width=24, dropout=0.1))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=24), folder / "index"))


@pytest.fixture
def transcribe(corpus, tmp_path):
    Transcribe.prepare(SMALL, corpus, tmp_path)
    return Transcribe(SMALL, tmp_path)


@pytest.fixture
def classify(corpus, tmp_path):
    config = ClassifyConfig(label="register")
    Classify.prepare(config, corpus, tmp_path)
    return Classify(config, tmp_path)


def seeded(task, config=None):
    torch.manual_seed(5)
    return FAMILY.build(config or SslConfig(), task, Path())


def test_keeps_every_promise_when_transcribing(corpus, transcribe):
    check_family(FAMILY, SslConfig(), transcribe, corpus[:4], tolerance=1e-5)


def test_keeps_every_promise_when_classifying(corpus, classify):
    check_family(FAMILY, SslConfig(stack=1), classify, corpus[:4], tolerance=1e-5)


def test_scores_are_the_same_bits_whatever_the_batch(corpus, transcribe):
    built = seeded(transcribe)
    reader, model = Reader(corpus, built.codec.target), built.model.eval()

    def outputs(size):
        found, hypotheses = {}, []
        with torch.inference_mode():
            for start in range(0, len(corpus), size):
                batch, _ = reader.read(np.arange(start, start + size))
                scorer = model.scorer(batch)
                hypotheses += search(scorer, Search())
                rows = zip(batch.ids, scorer.log_probs, scorer.lengths, strict=True)
                found |= {name: row[:length] for name, row, length in rows}
        return found, hypotheses

    alone, hypotheses = outputs(1)
    for size in (8, 24):
        together, same_hypotheses = outputs(size)
        assert all(torch.equal(alone[name], together[name]) for name in alone)
        assert hypotheses == same_hypotheses


def test_the_shortest_sound_there_can_be_is_still_scored(transcribe):
    model = seeded(transcribe).model.eval()
    batch = batch_of([(str(samples), np.ones(samples, np.float32), ()) for samples in (1, 399, 16_000)])
    scorer = model.scorer(batch)
    assert scorer.lengths.tolist() == [1, 1, 33] == [model.frames(samples) for samples in batch.lengths.tolist()]
    assert scorer.log_probs.isfinite().all()


def test_frames_are_counted_after_stacking(transcribe):
    assert seeded(transcribe).model.frames(16_000) == 33  # 98 frames of 10 ms by threes
    assert seeded(transcribe, SslConfig(stack=1)).model.frames(16_000) == 98


def test_trains_in_bfloat16_with_a_loss_in_float32(corpus, transcribe):
    built = seeded(transcribe)
    batch, _ = Reader(corpus, built.codec.target).read([0, 1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = built.model.loss(batch).total
    narrow.backward()
    assert narrow.dtype == torch.float32
    assert narrow.item() == pytest.approx(built.model.eval().loss(batch).total.item(), rel=0.05)


def test_learns_who_speaks(corpus, classify):
    built = seeded(classify)
    optimizer = torch.optim.Adam(built.model.parameters(), lr=3e-3)
    batch, _ = Reader(corpus, built.codec.target).read(range(6))
    for _ in range(12):
        optimizer.zero_grad()
        built.model.loss(batch).total.backward()
        optimizer.step()
    found = [built.codec.read(each) for each in search(built.model.eval().scorer(batch), Search())]
    assert found == [utterance.labels["register"] for utterance in corpus[:6]]


def test_learns_to_spell(corpus, transcribe):
    built = seeded(transcribe)
    optimizer = torch.optim.Adam(built.model.parameters(), lr=1e-2)
    shortest = sorted(range(24), key=lambda row: corpus[row].seconds)[:2]
    batch, _ = Reader(corpus, built.codec.target).read(shortest)
    for _ in range(60):
        optimizer.zero_grad()
        loss = built.model.loss(batch)
        (loss.total / loss.count).backward()
        optimizer.step()
    with torch.inference_mode():
        found = search(built.model.eval().scorer(batch), Search("beam"))
    assert [built.codec.read(each) for each in found] == [corpus[row].text for row in shortest]


def test_configuring_does_not_load_torch():
    imports = "import sys, attune.families.ssl, attune.tasks.transcribe, attune.tasks.classify"
    assert subprocess.run([sys.executable, "-c", f"{imports}; sys.exit('torch' in sys.modules)"]).returncode == 0
