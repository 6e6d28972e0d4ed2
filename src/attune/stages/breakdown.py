"""Scores of parts of a set: each speaker, each language, each value of a label."""

from collections.abc import Iterable, Sequence

from attune.catalog import suggestion
from attune.contracts import Task
from attune.errors import ConfigError
from attune.types import Prediction, Scores, ScoringContext, Utterance

FIELDS = ("speaker", "language", "label")  # a label is what was to be predicted, where no label has that name
UNKNOWN = "(none)"
LOOKED_AT = 1000  # utterances whose labels are known by name


def require_groups(by: str, utterances: Iterable[Utterance], task: Task) -> None:
    """Refuse what no utterance can be grouped by, before anything is decoded."""
    if task.scored_over == "set":
        raise ConfigError("--by: this task is scored over whole sets, not over parts of them. Remove it.")
    if by in FIELDS:
        return
    known = {name for utterance, _ in zip(utterances, range(LOOKED_AT), strict=False) for name in utterance.labels}
    if by not in known:
        raise ConfigError(f"--by: the utterances have no label {by!r}{suggestion(by, {*FIELDS, *known})}")


def group_scores(by: str, predictions: Sequence[Prediction], task: Task, context: ScoringContext) -> dict[str, Scores]:
    """The scores of each group of predictions, by its name."""
    groups: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault(_group(by, prediction, context.utterance(prediction.id)), []).append(prediction)
    return {name: task.score(part, context) for name, part in sorted(groups.items())}


def _group(by: str, prediction: Prediction, utterance: Utterance) -> str:
    if by in utterance.labels:
        return utterance.labels[by]
    match by:
        case "speaker":
            return utterance.speaker or UNKNOWN
        case "language":
            return utterance.language or prediction.language or UNKNOWN
        case "label":
            return str(prediction.reference)
        case _:
            return UNKNOWN
