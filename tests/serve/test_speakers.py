"""diarized_json: words with the speakers of a model that diarizes, in the official client's types."""

import numpy as np
import openai
import pytest

import attune
from attune.recognizer import Hints, Transcript
from attune.serve.settings import ServerLimits, ServerSettings
from attune.serve.speakers import SpeakerTurn, diarized
from attune.serve.uploads import Upload
from attune.types import Word

from serving import DEMO, demo_clips, running
from untrained import write_model

pytestmark = pytest.mark.recipe

UPLOAD = Upload(None, np.zeros(16_000 * 5, np.float32), Hints(), "diarized_json")


def found(*times):
    words = tuple(Word(f"w{index}", start, end, 1.0) for index, (start, end) in enumerate(times))
    return Transcript(" ".join(word.text for word in words), words)


def segments(transcript, *turns):
    written = diarized(UPLOAD, transcript, [SpeakerTurn(*turn) for turn in turns], " ".join)
    return [(each["speaker"], each["start"], each["end"], each["text"]) for each in written["segments"]]


def test_a_word_goes_to_whom_most_of_it_belongs_and_the_first_speaker_is_a():
    words = found((0.0, 0.4), (0.5, 0.9), (1.1, 1.5), (3.0, 3.2))
    turns = (1.0, 2.0, "0"), (0.0, 1.2, "1"), (2.9, 3.3, "1")
    assert segments(words, *turns) == [("A", 0.0, 0.9, "w0 w1"), ("B", 1.1, 1.5, "w2"), ("A", 3.0, 3.2, "w3")]


def test_a_word_between_turns_goes_to_the_nearest_and_without_any_there_is_one_speaker():
    words = found((0.0, 0.1), (1.8, 1.9))
    assert [each[0] for each in segments(words, (0.0, 0.2, "0"), (2.0, 3.0, "1"))] == ["A", "B"]
    assert segments(words) == [("A", 0.0, 1.9, "w0 w1")]
    assert segments(found()) == []


def official(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def diarizer(tmp_path_factory):
    return attune.load(write_model(tmp_path_factory.mktemp("diarizer"), "task.name=diarize"), "cpu")


def test_the_official_client_reads_speakers(diarizer):
    clip, _ = demo_clips()[0]
    recognizer = attune.load(DEMO / "model", "cpu")
    (expected,) = recognizer.transcribe_detailed([clip])
    with running({"demo": recognizer}, speakers=diarizer) as address, official(address) as client:
        answer = client.audio.transcriptions.create(model="demo", file=clip, response_format="diarized_json")
        with pytest.raises(openai.UnprocessableEntityError, match="no stream"):
            client.audio.transcriptions.create(model="demo", file=clip, response_format="diarized_json", stream=True)
    assert type(answer).__name__ == "TranscriptionDiarized" and answer.text == expected.text
    assert " ".join(each.text for each in answer.segments) == expected.text
    assert {each.speaker for each in answer.segments} <= {"A", "B"}
    assert answer.segments[-1].end == expected.words[-1].end


def test_what_is_too_long_to_be_diarized_at_once_is_refused(diarizer):
    settings = ServerSettings(limits=ServerLimits(diarized_seconds=1))
    models = {"demo": attune.load(DEMO / "model", "cpu")}
    clip, _ = demo_clips()[0]
    with (
        running(models, settings, diarizer) as address,
        official(address) as client,
        pytest.raises(openai.APIStatusError, match="up to 1 s") as refused,
    ):
        client.audio.transcriptions.create(model="demo", file=clip, response_format="diarized_json")
    assert refused.value.status_code == 413
