"""ROVER: the transcripts of several systems voted to one, word by word.

"A post-processing system to yield reduced word error rates: Recognizer Output Voting Error Reduction" (1997).
Transcripts are aligned one after another to a network of places, each with one word or nothing (null) of every system
so far. At each place the word with the best score wins: alpha × share of the systems + (1 - alpha) × confidence, where
the confidence is the average or the maximum of those that have the word, and that of null is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Vote = Literal["frequency", "average", "maximum"]
SUBSTITUTION, INSERTION, DELETION = 4, 3, 3  # NIST's costs of an alignment


@dataclass(frozen=True, slots=True)
class ScoredWord:
    """A word of a transcript and how sure its system was of it."""

    text: str
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class VotingRules:
    """How places are voted on. By frequency, confidences do not count."""

    vote: Vote = "frequency"
    alpha: float = 1.0
    null_confidence: float = 0.0


Place = tuple[ScoredWord | None, ...]  # one of each system; None: null


def vote(transcripts: Sequence[Sequence[ScoredWord]], rules: VotingRules) -> list[ScoredWord]:
    """The words that win, each with its confidence among those that have it."""
    winners = [_winner(place, rules) for place in network(transcripts)]
    return [word for word in winners if word is not None]


def network(transcripts: Sequence[Sequence[ScoredWord]]) -> list[Place]:
    """The transcripts as places, in the order of the systems."""
    places: list[Place] = [(word,) for word in transcripts[0]]
    for number, words in enumerate(transcripts[1:], 1):
        places = _joined(places, words, number)
    return places


def _joined(places: Sequence[Place], words: Sequence[ScoredWord], systems: int) -> list[Place]:
    """The network with another transcript, along a cheapest alignment; of equal ones words meet words first."""
    costs = _costs(places, words)
    row, column = len(places), len(words)
    joined: list[Place] = []
    while row or column:
        here = costs[row][column]
        if row and column and here == costs[row - 1][column - 1] + _meeting(places[row - 1], words[column - 1]):
            row, column = row - 1, column - 1
            joined.append((*places[row], words[column]))
        elif row and here == costs[row - 1][column] + _leaving(places[row - 1]):
            row -= 1
            joined.append((*places[row], None))
        else:
            column -= 1
            joined.append((*(None for _ in range(systems)), words[column]))
    return joined[::-1]


def _costs(places: Sequence[Place], words: Sequence[ScoredWord]) -> list[list[int]]:
    costs = [[INSERTION * column for column in range(len(words) + 1)]]
    for place in places:
        above, row = costs[-1], [costs[-1][0] + _leaving(place)]
        for column, word in enumerate(words, 1):
            ways = (above[column - 1] + _meeting(place, word), above[column] + _leaving(place), row[-1] + INSERTION)
            row.append(min(ways))
        costs.append(row)
    return costs


def _meeting(place: Place, word: ScoredWord) -> int:
    return 0 if any(own is not None and own.text == word.text for own in place) else SUBSTITUTION


def _leaving(place: Place) -> int:
    """What it costs that a transcript has nothing here: nothing where another has nothing either."""
    return 0 if None in place else DELETION


def _winner(place: Place, rules: VotingRules) -> ScoredWord | None:
    """The best word of a place; of equal ones that of the first system."""
    texts = dict.fromkeys(None if word is None else word.text for word in place)
    scores = {text: _score(text, place, rules) for text in texts}
    best = max(texts, key=lambda text: scores[text])
    return None if best is None else ScoredWord(best, _confidence(best, place, rules))


def _score(text: str | None, place: Place, rules: VotingRules) -> float:
    share = sum((None if word is None else word.text) == text for word in place) / len(place)
    if rules.vote == "frequency":
        return share
    return rules.alpha * share + (1 - rules.alpha) * _confidence(text, place, rules)


def _confidence(text: str | None, place: Place, rules: VotingRules) -> float:
    if text is None:
        return rules.null_confidence
    found = [word.confidence for word in place if word is not None and word.text == text]
    return max(found) if rules.vote == "maximum" else sum(found) / len(found)
