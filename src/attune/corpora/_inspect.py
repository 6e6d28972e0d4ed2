"""The deep check: decode every utterance, as in training, and report what is wrong with it."""

import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from attune.audio.decode import SLACK_SECONDS, read_utterance
from attune.corpora._manifest import Corpus, RowProblem
from attune.errors import DataError
from attune.processes import die_with_parent, fork_context
from attune.sources import content_of, shown
from attune.types import SAMPLE_RATE, Utterance

CHUNK = 16  # rows per task of a worker


def inspect_audio(utterance: Utterance) -> str | None:
    """The problem of a row's audio, if any: unreadable, silent, or a duration other than the manifest's."""
    try:
        samples = read_utterance(utterance, content=content_of(utterance))
    except DataError as error:
        return str(error)
    if not samples.any():
        return f"{shown(str(utterance.audio))} is silent (all samples are zero)"
    seconds = len(samples) / SAMPLE_RATE
    if abs(seconds - utterance.seconds) > max(SLACK_SECONDS, 0.02 * utterance.seconds):
        audio = shown(str(utterance.audio))
        return f"{audio} has {seconds:.2f} s of audio; the manifest has {utterance.seconds:.2f} s"
    return None


def inspect_corpus(corpus: Corpus, workers: int, rows: Iterable[int] | None = None) -> Iterator[RowProblem | None]:
    """The problem of each row, or None, in order, by `workers` processes; rows without audio pass."""
    utterances = iter(corpus) if rows is None else (corpus[int(row)] for row in rows)
    waiting: deque[tuple[list[Utterance], Future[list[RowProblem | None]]]] = deque()
    reached = "the first row"
    pool = ProcessPoolExecutor(workers, fork_context(), initializer=init_worker)
    try:
        while True:
            # At most two chunks ahead per worker: the rows of a large corpus must not fill the memory.
            while len(waiting) < 2 * workers and (chunk := list(islice(utterances, CHUNK))):
                waiting.append((chunk, pool.submit(_inspect_all, chunk)))
            if not waiting:
                return
            chunk, found = waiting.popleft()
            yield from found.result()
            reached = chunk[-1].where
    except BrokenProcessPool as error:
        raise DataError(
            f"A worker that decodes `{corpus.name}` was killed soon after {reached}: out of memory, or a damaged file. "
            "Try fewer workers; if it fails at the same file, remove its row."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def init_worker() -> None:
    """Initialize a worker process: it ends with its parent, and ignores Ctrl-C."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent ends the workers


def _inspect_all(utterances: Sequence[Utterance]) -> list[RowProblem | None]:
    reasons = [inspect_audio(utterance) if utterance.audio else None for utterance in utterances]
    return [
        RowProblem(utterance.where, utterance.id, reason) if reason else None
        for utterance, reason in zip(utterances, reasons, strict=True)
    ]
