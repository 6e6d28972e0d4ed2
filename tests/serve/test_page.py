"""The page of the server in a real browser: a file, a microphone, words to click, rows to save, on a phone too."""

import os
from pathlib import Path

import pytest
import soundfile

import attune
from attune.corpora import open_manifest
from attune.serve.settings import ServerSettings

from browser import browser
from serving import DEMO, demo_clips, running

pytestmark = pytest.mark.recipe

PICTURES = os.environ.get("PICTURES")  # a folder, for those who want to look


@pytest.fixture(scope="module")
def recognizer():
    return attune.load(DEMO / "model")


@pytest.fixture(scope="module")
def microphone(tmp_path_factory):
    """What the browser takes for a microphone: two recordings with pauses, over and over."""
    path = tmp_path_factory.mktemp("microphone") / "talk.wav"
    clips = [attune.load_audio(clip) for clip, _ in demo_clips()[:2]]
    with soundfile.SoundFile(path, "w", 16_000, 1) as file:
        for clip in clips:
            file.write(clip)
            file.write([0.0] * 16_000)
    return path


def upload(tab, path):
    """Choose a file, as in the dialog."""
    document = tab.call("DOM.getDocument")["root"]["nodeId"]
    field = tab.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    tab.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])


def look(tab, name, **how):
    if PICTURES:
        tab.picture(Path(PICTURES) / f"{name}.png", whole=True, **how)


def test_a_file_is_shown_word_by_word_corrected_and_saved(recognizer, tmp_path):
    clip, row = demo_clips()[0]
    settings = ServerSettings(collect=tmp_path / "rows")
    (expected,) = recognizer.transcribe_detailed([clip])
    with running({"demo": recognizer, "again": recognizer}, settings) as address, browser() as tab:
        tab.open(address, "document.querySelectorAll('#models input').length == 2")
        tab.run("document.querySelectorAll('#models input')[1].click()")
        upload(tab, clip)
        tab.wait(f"document.querySelectorAll('.result .word').length == {2 * len(expected.words)}")
        words = tab.run(
            "[...document.querySelector('.result').querySelectorAll('.word')].map(each => each.textContent)"
        )
        assert words == [word.text for word in expected.words]
        look(tab, "file")
        look(tab, "file-dark", dark=True)
        look(tab, "file-phone", width=390, height=844)
        tab.look(390, 844)
        assert tab.run("document.documentElement.scrollWidth") <= 390
        tab.run("document.querySelector('.word:last-child').click()")
        tab.wait("document.getElementById('player').currentTime > 0.2")
        tab.run(f"document.querySelector('.correct textarea').value = {row['text']!r}")
        tab.run("document.querySelector('.save').click()")
        tab.wait("document.getElementById('status').textContent.startsWith('Saved')")
        assert tab.problems == [] and all(url.startswith((address, "blob:", "data:")) for url in tab.requests)
    (saved,) = open_manifest(tmp_path / "rows" / "manifest.jsonl", tmp_path / "index")
    assert saved.text == row["text"] and saved.seconds == pytest.approx(row["seconds"], abs=0.01)


def test_words_appear_while_one_speaks_into_the_microphone(recognizer, microphone):
    flags = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
    sound = f"--use-file-for-fake-audio-capture={microphone}"
    with running({"demo": recognizer}) as address, browser(*flags, sound) as tab:
        tab.open(address, "document.readyState == 'complete'")
        tab.run("document.getElementById('record').click()")
        tab.wait("document.querySelector('.result .words')?.textContent.trim().split(' ').length > 1", seconds=60)
        look(tab, "microphone", width=390, height=844)
        tab.run("document.getElementById('record').click()")
        tab.wait("document.querySelectorAll('.result .word').length > 1", seconds=60)
        assert tab.problems == []


def test_a_server_with_a_token_asks_for_it(recognizer):
    with running({"demo": recognizer}, ServerSettings(token="right")) as address, browser() as tab:
        tab.open(address, "document.readyState == 'complete'")
        upload(tab, demo_clips()[0][0])
        tab.wait("document.getElementById('token-dialog').open")
        tab.run("document.getElementById('token').value = 'right'")
        tab.run("document.querySelector('#token-dialog button').click()")
        tab.wait("document.querySelectorAll('.result .word').length")
        assert all("401" in problem for problem in tab.problems)
