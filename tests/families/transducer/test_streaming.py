"""Streaming FastConformers: transformers' definition on random weights, and streamed = whole for any pieces."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from attune.corpora import open_manifest
from attune.decoding.search import Search, decode_batch
from attune.decoding.streaming import StreamDecoder
from attune.errors import ConfigError, ModelError
from attune.families.transducer import FAMILY, TransducerConfig
from attune.families.transducer.parakeet import RENAMES
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.testing import check_family, make_corpus
from attune.testing.data import speak

from tiny import batch_of

pytestmark = pytest.mark.recipe

PIECES = TranscribeConfig(tokens="bpe", vocabulary=40)
LOOK_AHEADS = (3, 1, 0)


def config(**settings):
    return TransducerConfig(encoder="fastconformer", size="dummy", tokens="task", look_aheads=LOOK_AHEADS, **settings)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=24), folder / "index"))


@pytest.fixture(scope="module")
def task(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    Transcribe.prepare(PIECES, corpus, folder)
    return Transcribe(PIECES, folder)


def build(task, seed=5, **settings):
    torch.manual_seed(seed)
    built = FAMILY.build(config(**settings), task, Path("nowhere"))
    built.model.eval()
    with torch.no_grad():  # a random model's tokens are nearly equal; so they are farther apart, and some are labels
        built.model.joint.output.weight *= 8
        built.model.joint.output.bias[-1 - len(built.model.shape.durations)] += 0.5
    return built


def recordings():
    """Of very unlike lengths; one is shorter than a chunk, one ends on a frame."""
    random_numbers = np.random.default_rng(3)
    lengths = (300, 1_280 * 9, 40_007)
    return [
        (np.resize(speak("abcdefgh"), length) + random_numbers.normal(scale=0.05, size=length)).astype(np.float32)
        for length in lengths
    ]


def test_keeps_every_promise(corpus, task):
    check_family(FAMILY, config(), task, corpus[5:8], Path("nowhere"))


@pytest.mark.parametrize("look_ahead", LOOK_AHEADS)
def test_the_encoder_is_that_of_transformers(task, look_ahead):
    from transformers import NemotronAsrStreamingEncoderConfig
    from transformers.models.nemotron_asr_streaming import NemotronAsrStreamingEncoder

    encoder = build(task, look_ahead=look_ahead).model.encoder
    own = encoder.state_dict()
    described = NemotronAsrStreamingEncoderConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192, conv_kernel_size=9,
        subsampling_conv_channels=48, num_mel_bins=80, sliding_window=71, scale_input=True,
    )  # fmt: skip
    theirs = NemotronAsrStreamingEncoder(described).eval()
    theirs.load_state_dict(renamed(own, theirs.state_dict()))
    mels = torch.randn(2, 80, 403)
    lengths = torch.tensor([403, 250])
    mels[1, :, 250:] = 0
    mask = torch.arange(403) < lengths[:, None]
    with torch.no_grad():
        found, counts = encoder(mels, lengths)
        expected = theirs(mels.transpose(1, 2), attention_mask=mask, num_lookahead_tokens=look_ahead)
    for row, count in enumerate(counts.tolist()):
        assert (found[row, :count] - expected.last_hidden_state[row, :count]).abs().max() < 1e-4
    assert expected.attention_mask.sum(1).tolist() == counts.tolist()


def renamed(own, theirs):
    """Our tensors under transformers' names; convolutions of the subsampling by their order."""
    found = {}
    for name, tensor in own.items():
        new = f"encoder.{name}"
        for pattern, target in RENAMES:
            new = re.sub(pattern, target, new)
        found[new.removeprefix("encoder.")] = tensor
    ordered = [name for name in theirs if name.startswith("subsampling") and ".linear" not in name]
    mine = [name for name in found if name.startswith("subsampling") and ".linear" not in name]
    return {**{name: found.pop(old) for name, old in zip(ordered, mine, strict=True)}, **found}


@pytest.mark.parametrize("look_ahead", LOOK_AHEADS)
@pytest.mark.parametrize("durations", [(), (0, 1, 2, 4)])
def test_streamed_is_whole_for_any_pieces_and_any_number_of_streams(task, look_ahead, durations):
    built = build(task, look_ahead=look_ahead, durations=durations)
    audio = recordings()
    whole = [decode_batch(built, batch_of([("", each, ())]), Search())[0] for each in audio]
    assert 10 < sum(len(each.tokens) for each in whole) < 2000
    decoder = StreamDecoder(built)
    for step in (1_111, 16_000, 200_000):
        for together in ([each] for each in range(len(audio))), [list(range(len(audio)))]:
            for rows in together:
                streams = [decoder.open() for _ in rows]
                longest = max(len(audio[row]) for row in rows)
                for start in range(0, longest, step):
                    decoder.feed(streams, [audio[row][start : start + step] for row in rows])
                decoder.feed(streams, [np.empty(0, np.float32)] * len(rows), is_last=True)
                for stream, row in zip(streams, rows, strict=True):
                    assert (stream.found.tokens, stream.found.frames) == (whole[row].tokens, whole[row].frames)
                    assert stream.found.score == pytest.approx(whole[row].score, abs=1e-2)


def test_tokens_come_while_the_stream_goes_on(task):
    built, samples = build(task, look_ahead=0), recordings()[-1]
    decoder = StreamDecoder(built)
    stream, counts = decoder.open(), []
    for start in range(0, len(samples), 1_600):
        decoder.feed([stream], [samples[start : start + 1_600]])
        counts.append(len(stream.found.tokens))
        seconds = (start + 1_600) / 16_000
        assert stream.frames * 0.08 >= seconds - 0.3  # nothing waits longer than its frame and its window
    assert counts == sorted(counts) and 0 < counts[len(counts) // 2] < counts[-1]


def test_in_training_the_seed_draws_a_look_ahead(task):
    built = build(task)
    encoder = built.model.encoder.train()
    mels = torch.randn(1, 80, 160)
    for part in encoder.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    for layer in encoder.layers:
        layer.self_attn.dropout = 0.0

    def frames(seed):
        torch.manual_seed(seed)
        return encoder(mels, torch.tensor([160]))[0].detach()

    assert torch.equal(frames(1), frames(1))
    assert len({round(float(frames(seed)[0, 0, 0]), 4) for seed in range(20)}) == len(LOOK_AHEADS)


def test_a_look_ahead_that_the_model_was_not_trained_for_is_refused(task):
    with pytest.raises(ConfigError, match="trained for 3, 1, 0"):
        build(task, look_ahead=2)
    with pytest.raises(ConfigError, match="needs whole utterances"):
        FAMILY.build(
            TransducerConfig(encoder="conformer", size="dummy", tokens="task", look_ahead=1), task, Path("nowhere")
        )


def test_a_model_that_sees_whole_utterances_hears_no_streams(task):
    built = FAMILY.build(TransducerConfig(encoder="fastconformer", size="dummy", tokens="task"), task, Path("nowhere"))
    with pytest.raises(ModelError, match="whole utterances"):
        StreamDecoder(built)


def test_a_stream_that_ends_before_its_first_sample_has_no_frames(task):
    decoder = StreamDecoder(build(task))
    stream = decoder.open()
    decoder.feed([stream], [np.empty(0, np.float32)], is_last=True)
    assert stream.frames == 0 and stream.found.tokens == ()
