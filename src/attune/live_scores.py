"""A set in pieces, as a microphone would give it: the scores of its final results, and how late the words were."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attune.batches.load import Reader
from attune.corpora import Corpus
from attune.live import Listening, StreamLatency, open_live, pieces
from attune.recognizer import Hints, Recognizer
from attune.report.tables import scores_json
from attune.site import Site
from attune.stages.evaluate import Decoding, scoring_context
from attune.streaming.live import StreamKind
from attune.types import Prediction, Scores


@dataclass(frozen=True, slots=True)
class StreamEvaluation:
    """The scores of a set's final results, and the latency of each utterance."""

    split: str
    kind: StreamKind
    scores: Scores
    latencies: tuple[StreamLatency, ...]
    real_time_factor: float

    def delays(self) -> Mapping[str, tuple[float, float]]:
        """The median and the 90th percentile, in seconds, of how late the first and the last word were."""
        found = {
            "first_word": [each.first_word for each in self.latencies if each.first_word is not None],
            "last_word": [each.last_word for each in self.latencies if each.last_word is not None],
        }
        return {name: _quantiles(seconds) for name, seconds in found.items() if seconds}

    def as_json(self) -> dict[str, object]:
        """All of it as plain data."""
        delays = {
            name: {"median": round(median, 3), "p90": round(late, 3)} for name, (median, late) in self.delays().items()
        }
        stream = {"kind": self.kind, "latency": delays, "rtf": round(self.real_time_factor, 4)}
        return {"split": self.split, **scores_json(self.scores), "stream": stream}


def _quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    median, late = np.quantile(seconds, (0.5, 0.9))
    return float(median), float(late)


def evaluate_stream(
    recognizer: Recognizer, corpus: Corpus, folder: Path, site: Site
) -> Generator[Decoding, None, StreamEvaluation]:
    """Feed every recording of a set in pieces, one after the other, and score what is final at its end."""
    task = recognizer.loaded.task
    reader, kind = Reader(corpus), open_live(recognizer).kind
    predictions, latencies, busy = [], [], 0.0
    for row in range(len(corpus)):
        yield Decoding(corpus.name, row, len(corpus))
        utterance = corpus[row]
        batch, _ = reader.read(np.array([row]))
        samples = batch.audio[0].numpy() if batch else np.empty(0, np.float32)
        listening = Listening(open_live(recognizer, Hints(utterance.language)))
        texts = [each.text for each in listening.results(pieces(samples)) if each.is_final]
        value = recognizer.loaded.task_model.codec.join(texts, utterance)
        predictions.append(Prediction(utterance.id, value, task.reference(utterance)))
        latencies.append(listening.latency)
        busy += listening.latency.real_time_factor * utterance.seconds
    yield Decoding(corpus.name, len(corpus), len(corpus))
    scores = task.score(predictions, scoring_context(task, corpus, folder, site))
    return StreamEvaluation(corpus.name, kind, scores, tuple(latencies), busy / max(float(corpus.seconds.sum()), 1e-9))
