"""Speaker labels that are scored over pairs of utterances: a trial list says which, and manifests who speaks."""

from dataclasses import dataclass

from attune.scoring.bootstrap import percent
from attune.scoring.texts import texts_of
from attune.tasks.classify import Classify, ClassifyConfig
from attune.types import Metric, Scores

AGREEMENT = Metric("agreement", "%", True, "Share of the trial pairs that are rightly called same or different.")


@dataclass(frozen=True, slots=True)
class TrialsConfig(ClassifyConfig):
    trials: str = "trials.txt"


class Trials(Classify):
    Config = TrialsConfig
    metrics = (AGREEMENT,)
    scored_over = "set"

    def scoring_files(self, split):
        return {"trials": self.config.trials}

    def score(self, predictions, context):
        found = dict(zip([each.id for each in predictions], texts_of(predictions)[1], strict=True))
        pairs = [line.split() for line in context.files["trials"].read_text().splitlines()]
        known = [pair for pair in pairs if None not in (found[pair[0]], found[pair[1]])]
        right = [
            (found[a] == found[b]) == (context.utterance(a).speaker == context.utterance(b).speaker) for a, b in known
        ]
        return Scores({"agreement": percent(AGREEMENT, right, [1] * len(right))}, {"trials": len(right)})


TASK = Trials
