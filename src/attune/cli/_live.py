"""`attune transcribe --stream`: results while a file is fed as a microphone would, or while PCM comes from stdin."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attune.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attune.live import Listening
    from attune.recognizer import Recognizer
    from attune.streaming.live import LiveResult

STDIN = "-"
BYTES = 3200  # 0.1 s of PCM16 at 16 kHz


def run_live(arguments: Namespace, recognizer: Recognizer) -> int:
    """Print results as they come: partial ones are overwritten on a terminal, final ones stay."""
    from attune.live import Listening, open_live, pieces
    from attune.recognizer import Hints
    from attune.recordings import load_audio

    if arguments.out or arguments.nbest or arguments.launch == "ray":
        raise ConfigError("--stream prints its results; it does not work with --out, --nbest or --launch ray.")
    for path in arguments.files:
        listening = Listening(open_live(recognizer, Hints(arguments.language)))
        audio = microphone() if path == STDIN else pieces(load_audio(path))
        for result in listening.results(audio):
            _show(path, result, arguments.json)
        _show_latency(path, listening, arguments.json)
    return 0


def microphone() -> Iterator[NDArray[np.float32]]:
    """PCM16, mono, 16 kHz, from stdin: `arecord -f S16_LE -r 16000 -t raw | attune transcribe MODEL - --stream`."""
    import numpy as np

    while pcm := sys.stdin.buffer.read(BYTES):
        yield np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / np.float32(32768)


def _show(path: str, result: LiveResult, as_json: bool) -> None:
    if as_json:
        words = [{"text": each.text, "start": each.start, "end": each.end} for each in result.words]
        values = {"path": path, "text": result.text, "is_final": result.is_final, "start": round(result.start, 3)}
        print(
            json.dumps({**values, "at": round(result.audio_seconds, 3), "words": words}, ensure_ascii=False), flush=True
        )
    elif result.is_final:
        print(f"\r\033[K{result.text}" if sys.stdout.isatty() else result.text, flush=True)
    elif sys.stdout.isatty():
        print(f"\r\033[K{result.text} …", end="", flush=True)


def _show_latency(path: str, listening: Listening, as_json: bool) -> None:
    latency, kind = listening.latency, listening.stream.kind
    if as_json:
        values = {"first_word": latency.first_word, "last_word": latency.last_word}
        print(json.dumps({"path": path, "kind": kind, "latency": values, "rtf": latency.real_time_factor}))
    elif latency.first_word is not None:
        print(
            f"{path}: {kind}; first word after {latency.first_word:.2f} s, last word after {latency.last_word:.2f} s, "
            f"{1 / max(latency.real_time_factor, 1e-6):.0f}× real time",
            file=sys.stderr,
        )
