"""Word times of Whisper: the cheapest path by brute force, and the attention by transformers' own."""

import itertools
import json

import numpy as np
import pytest
import torch

import attune
from attune.cli import main
from attune.families.whisper.alignment import token_frames

from tiny_whisper import write_whisper


def cheapest(costs):
    """The cost of the best of all monotonic paths."""
    tokens, frames = costs.shape
    best = np.inf
    for moves in itertools.product((0, 1, 2), repeat=tokens + frames - 2):
        token = frame = 0
        spent = costs[0, 0]
        for move in moves:
            if (token, frame) == (tokens - 1, frames - 1):
                break
            token, frame = token + (move != 2), frame + (move != 1)
            if token >= tokens or frame >= frames:
                spent = np.inf
                break
            spent += costs[token, frame]
        if (token, frame) == (tokens - 1, frames - 1):
            best = min(best, spent)
    return best


@pytest.mark.parametrize("seed", range(3))
def test_the_path_is_the_cheapest_one(seed):
    costs = np.random.default_rng(seed).normal(size=(3, 4))
    starts = token_frames(costs)
    assert starts == sorted(starts) and starts[0] == 0
    # With these starts, each token keeps its frames until the next one starts (and may share that frame).
    ends = [*starts[1:], 3]
    options = [
        sum(costs[token, starts[token] : end + 1].sum() for token, end in enumerate(each))
        for each in shared(starts, ends)
    ]
    assert min(options) == pytest.approx(cheapest(costs))


def shared(starts, ends):
    choices = [sorted({max(start, end - 1), end}) for start, end in zip(starts, ends[:-1], strict=False)]
    return [[*each, 3] for each in itertools.product(*choices)]


def test_attention_that_is_plain_to_see_is_followed():
    costs = np.ones((3, 9))
    costs[0, 0:2], costs[1, 2:6], costs[2, 6:9] = -1, -1, -1
    assert token_frames(costs) == [0, 2, 6]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    write_whisper(folder / "theirs")
    assert main(["import", str(folder / "theirs"), "--to", str(folder / "model")]) == 0
    return folder / "model"


def test_words_spell_the_text_and_have_times_within_the_audio(model):
    rng = np.random.default_rng(0)
    audio = [(rng.normal(size=16_000 * seconds) * 0.1).astype(np.float32) for seconds in (1, 2)]
    recognizer = attune.load(model, device="cpu")
    together = recognizer.transcribe_detailed(audio)
    for seconds, transcript, alone in zip(
        (1, 2), together, (recognizer.transcribe_detailed([each])[0] for each in audio), strict=True
    ):
        assert transcript.words and transcript.words == alone.words
        assert "".join(word.text for word in transcript.words).replace(" ", "") == transcript.text.replace(" ", "")
        starts = [word.start for word in transcript.words]
        assert starts == sorted(starts) and starts[0] >= 0 and starts[-1] <= seconds
        assert all(0 <= word.confidence <= 1 for word in transcript.words)
    assert recognizer.transcribe_detailed(audio, words=False)[0].words == ()


def test_the_attention_is_transformers_own(model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(model, attn_implementation="eager").eval()
    own = attune.load(model, device="cpu").loaded.task_model.model
    states, tokens = torch.randn(1, 1500, 16), torch.tensor([[257, 261, 5, 9, 30]])
    with torch.inference_mode():
        expected = theirs.model.decoder(input_ids=tokens, encoder_hidden_states=states, output_attentions=True)
        logits, scores = own.model.decoder.trace(tokens, own.model.decoder.project_encoded(states), None)
        assert torch.allclose(logits, theirs.proj_out(expected.last_hidden_state), atol=1e-4)
    for ours, attention in zip(scores, expected.cross_attentions, strict=True):
        assert torch.allclose(ours.softmax(-1), attention, atol=1e-5)


def test_json_has_words(model, tmp_path, capsys):
    import soundfile

    soundfile.write(tmp_path / "a.wav", np.random.default_rng(1).normal(size=16_000) * 0.1, 16_000)
    capsys.readouterr()
    assert main(["transcribe", str(model), str(tmp_path / "a.wav"), "--json", "--device=cpu"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["words"] and row["segments"][0]["end"] == 1.0
