"""The deep check: decode every utterance, as training would, and say what is wrong with it."""

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from attune.audio.decode import SLACK_SECONDS, read_utterance
from attune.corpora._manifest import Corpus, RowProblem
from attune.errors import DataError
from attune.processes import die_with_parent
from attune.sources import content_of, shown
from attune.types import SAMPLE_RATE, Utterance

CHUNK = 16  # rows a worker is given at a time


def inspect_audio(utterance: Utterance) -> str | None:
    """What is wrong with the audio of a row: unreadable, silent, or not as long as the manifest says."""
    try:
        samples = read_utterance(utterance, content=content_of(utterance))
    except DataError as error:
        return str(error)
    if not samples.any():
        return f"{shown(str(utterance.audio))} is silent: every sample is zero"
    seconds = len(samples) / SAMPLE_RATE
    if abs(seconds - utterance.seconds) > max(SLACK_SECONDS, 0.02 * utterance.seconds):
        audio = shown(str(utterance.audio))
        return f"{audio} has {seconds:.2f} s of audio; the manifest says {utterance.seconds:.2f} s"
    return None


def inspect_corpus(corpus: Corpus, workers: int) -> Iterator[RowProblem | None]:
    """The problem or None of every row, in order, as `workers` processes find them; rows without audio pass."""
    utterances = iter(corpus)
    waiting: deque[tuple[list[Utterance], Future[list[RowProblem | None]]]] = deque()
    reached = "the beginning"
    pool = ProcessPoolExecutor(workers, initializer=settle_worker)
    try:
        while True:
            # Two chunks ahead for each worker and no more: the rows of a large corpus must not pile up.
            while len(waiting) < 2 * workers and (chunk := list(islice(utterances, CHUNK))):
                waiting.append((chunk, pool.submit(_inspect_all, chunk)))
            if not waiting:
                return
            chunk, found = waiting.popleft()
            yield from found.result()
            reached = chunk[-1].where
    except BrokenProcessPool as error:
        raise DataError(
            f"A decoder of `{corpus.name}` was killed, by lack of memory or by a damaged file, soon after {reached}. "
            "Try again with fewer workers; if it ends there again, leave the file out."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def settle_worker() -> None:
    """A process that reads for its parent: it ends with it, and leaves Ctrl-C to it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent ends the workers


def _inspect_all(utterances: Sequence[Utterance]) -> list[RowProblem | None]:
    reasons = [inspect_audio(utterance) if utterance.audio else None for utterance in utterances]
    return [
        RowProblem(utterance.where, utterance.id, reason) if reason else None
        for utterance, reason in zip(utterances, reasons, strict=True)
    ]
