"""The best score that a model could have: not every normalizer and vocabulary allows perfection."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attune.corpora import Corpus
from attune.errors import AttuneError, DataError
from attune.loading.data import read_back
from attune.loading.pretrained import LoadedModel
from attune.site import Site
from attune.stages.evaluate import scoring_context
from attune.types import Prediction, Score


@dataclass(frozen=True, slots=True)
class ScoreFloor:
    """The primary score of a model that predicts every target exactly, and what may keep it from being perfect."""

    score: Score
    causes: tuple[str, ...]


def score_floor(corpus: Corpus, loaded: LoadedModel, folder: Path, site: Site) -> ScoreFloor | None:
    """The primary score of flawless predictions, which not every normalizer and vocabulary allows to be perfect.

    None where it is perfect, or where a target cannot be read back as what it is compared with.
    """
    flawless, perfect = [], []
    for utterance in corpus:
        with suppress(DataError):  # `attune check` lists what is wrong with an utterance
            reference, value = loaded.task.reference(utterance), read_back(utterance, loaded)
            if type(value) is type(reference):
                flawless.append(Prediction(utterance.id, value, reference))
                perfect.append(Prediction(utterance.id, reference, reference))
    with suppress(AttuneError):  # and what keeps scoring from working
        context = scoring_context(loaded.task, corpus, folder, site)
        reached, best = (loaded.task.score(each, context) for each in (flawless, perfect))
        primary = loaded.task.metrics[0]
        if primary.is_better(best.values[primary.name].value, reached.values[primary.name].value):
            return ScoreFloor(reached.values[primary.name], (*reached.conditions, "vocabulary"))
    return None
