"""The deep check: decode every utterance, as training would, and say what is wrong with it."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from attune.audio.decode import SLACK_SECONDS, read_utterance
from attune.corpora._manifest import Corpus, Problem
from attune.errors import DataError
from attune.processes import die_with_parent
from attune.types import SAMPLE_RATE, Utterance

CHUNK = 16  # rows a worker is given at a time


def inspect_audio(utterance: Utterance) -> str | None:
    """What is wrong with the audio of a row: unreadable, silent, or not as long as the manifest says."""
    try:
        samples = read_utterance(utterance)
    except DataError as error:
        return str(error)
    if not samples.any():
        return f"{utterance.audio} is silent: every sample is zero"
    seconds = len(samples) / SAMPLE_RATE
    if abs(seconds - utterance.seconds) > max(SLACK_SECONDS, 0.02 * utterance.seconds):
        return f"{utterance.audio} has {seconds:.2f} s of audio; the manifest says {utterance.seconds:.2f} s"
    return None


def inspect_corpus(corpus: Corpus, workers: int) -> Iterator[Problem | None]:
    """The problem or None of every row, in order, as `workers` processes find them; rows without audio pass."""
    utterances = iter(corpus)
    waiting: deque[tuple[list[Utterance], Future[list[Problem | None]]]] = deque()
    pool = ProcessPoolExecutor(workers, initializer=die_with_parent)
    try:
        while True:
            # Two chunks ahead for each worker and no more: the rows of a large corpus must not pile up.
            while len(waiting) < 2 * workers and (chunk := list(islice(utterances, CHUNK))):
                waiting.append((chunk, pool.submit(_inspect_all, chunk)))
            if not waiting:
                return
            yield from _result(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _inspect_all(utterances: Sequence[Utterance]) -> list[Problem | None]:
    reasons = [inspect_audio(utterance) if utterance.audio else None for utterance in utterances]
    return [
        Problem(utterance.where, utterance.id, reason) if reason else None
        for utterance, reason in zip(utterances, reasons, strict=True)
    ]


def _result(chunk: Sequence[Utterance], found: Future[list[Problem | None]]) -> list[Problem | None]:
    try:
        return found.result()
    except BrokenProcessPool as error:
        raise DataError(
            f"The decoder was killed, out of memory or by a damaged file, between {chunk[0].where} "
            f"and {chunk[-1].where}. Try again with fewer workers, or leave the file out."
        ) from error
