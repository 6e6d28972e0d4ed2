"""Results while one speaks: a streaming transducer's words never change and are those of the whole, in any pieces."""

import json

import numpy as np
import pytest
import torch
from websockets.sync.client import connect

import attune
from attune.cli import main
from attune.live import Listening, open_live, pieces
from attune.testing import make_corpus
from attune.testing.data import speak

from serving import DEMO, demo_clips, running

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A streaming FastConformer after two steps."""
    folder = tmp_path_factory.mktemp("streaming")
    train = make_corpus(folder / "data", utterances=12)
    words = ["model.encoder=fastconformer", "model.size=dummy", "model.tokens=task", "model.look_aheads=[1, 0]"]
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        f"run: {folder}/run\ndata: {{train: [{train}]}}\ntask: {{name: transcribe, tokens: bpe, vocabulary: 40}}\n"
        "model: {family: transducer}\nbatches: {micro_seconds: 20}\noptimizer: {lr: 0.001}\n"
        "train: {steps: 2, warmup: 0, precision: fp32}\n"
    )
    assert main(["train", str(recipe), *words, "--device", "cpu"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def recognizer(run):
    """With a joint that says a lot of different things, though nothing right."""
    loaded = attune.load(run)
    joint = loaded.loaded.task_model.model.joint.output
    with torch.no_grad():
        joint.weight.copy_(torch.randn(joint.weight.shape, generator=torch.Generator().manual_seed(2)))
        joint.bias.zero_()
        joint.bias[-1] = 1.0
    return loaded


@pytest.fixture(scope="module")
def talk():
    """Speech with pauses that end utterances."""
    silence = np.zeros(12_800, np.float32)
    parts = [part for text in ("abcd", "efgh", "abab") for part in (speak(text * 3), silence)]
    noise = np.random.default_rng(1).normal(scale=1e-4, size=sum(map(len, parts)))
    return (np.concatenate(parts) + noise).astype(np.float32)


def test_final_results_of_a_streaming_model_have_the_words_of_the_whole(recognizer, talk):
    stream = open_live(recognizer)
    listening = Listening(stream)
    results = list(listening.results(pieces(talk)))
    final = [each for each in results if each.is_final]
    assert stream.kind == "cache-aware" and final
    assert " ".join(each.text for each in final) == recognizer.transcribe(talk)
    partial = [each for each in results if not each.is_final]
    assert partial and listening.latency.first_word is not None and listening.latency.real_time_factor > 0


def test_partial_results_are_never_taken_back(recognizer, talk):
    shown = ""
    for result in Listening(open_live(recognizer)).results(pieces(talk)):
        assert result.text.startswith(shown)
        shown = "" if result.is_final else result.text


def test_a_model_of_whole_utterances_is_asked_again_and_says_so():
    recognizer = attune.load(DEMO / "model")
    samples = np.concatenate([attune.load_audio(path) for path, _ in demo_clips()[:3]])
    stream = open_live(recognizer)
    results = list(Listening(stream).results(pieces(samples)))
    assert stream.kind == "agreement" and results[-1].is_final


def test_the_socket_streams_such_a_model_too(recognizer, talk):
    sound = (talk * 32767).astype("<i2").tobytes()
    with running({"tiny": recognizer}) as address:
        results = [stream(address, sound, step) for step in (3_200, 64_000)]
    (deltas, completed), (_, again) = results
    assert completed == again and completed
    assert "".join(deltas).replace(" ", "") == "".join(completed).replace(" ", "")


def stream(address, sound, step):
    with connect(address.replace("http", "ws") + "/v1/realtime?rate=16000") as socket:
        for start in range(0, len(sound), step):
            socket.send(sound[start : start + step])
        socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
        events = [json.loads(socket.recv(timeout=60))]
        while events[-1]["type"] != "input_audio_buffer.committed":
            events.append(json.loads(socket.recv(timeout=60)))
    deltas = [each["delta"] for each in events if each["type"].endswith("transcription.delta")]
    return deltas, [each["transcript"] for each in events if each["type"].endswith("transcription.completed")]


def test_the_command_prints_results_and_how_late_they_are(run, tmp_path, capsys):
    import soundfile

    soundfile.write(tmp_path / "talk.wav", speak("abcdabcd"), 16_000)
    assert main(["transcribe", str(run), str(tmp_path / "talk.wav"), "--stream", "--json"]) == 0
    *_, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert last["kind"] == "cache-aware" and last["rtf"] > 0
    assert main(["transcribe", str(run), "x.wav", "--stream", "--out", "x.csv"]) == 2


@pytest.mark.parametrize("look_ahead", [0, 1])
def test_a_set_is_scored_as_a_stream_with_the_results_of_whole_recordings_and_their_latency(run, look_ahead, capsys):
    (data,) = (run.parent / "data").glob("*.jsonl")
    words = ["evaluate", str(run / "model"), f"model.look_ahead={look_ahead}", "--on", str(data), "--device", "cpu"]
    assert main([*words, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main([*words, "--json", "--stream"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stream"]["kind"] == "cache-aware" and found["stream"]["rtf"] > 0
    assert found.pop("stream") and found["counts"]
    assert found == {name: whole[name] for name in found}
    assert main([*words, "--stream", "--by", "speaker"]) == 2


def test_a_model_of_whole_utterances_reports_when_its_first_and_last_words_came(capsys, tmp_path):
    rows = [{**row, "audio": str(path)} for path, row in demo_clips()[:3]]
    (tmp_path / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["evaluate", str(DEMO / "model"), "--on", str(tmp_path / "few.jsonl"), "--stream", "--device", "cpu"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "agreement streams" in shown and "first word:" in shown and "last word:" in shown and "wer" in shown


def test_a_streaming_model_goes_to_nemo_and_back(run, tmp_path, recognizer):
    assert main(["export", str(run), "--to", str(tmp_path / "model")]) == 0
    back = attune.load(tmp_path / "model" / "model.nemo").loaded.task_model.model
    assert back.can_stream and back.encoder.context.look_aheads == (1, 0)
    assert main(["export", str(run), "--to", str(tmp_path / "other"), "--for-transformers"]) == 2
