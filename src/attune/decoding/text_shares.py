"""Which part of a text belongs to which part of a recording, by what is recognized there.

Texts are compared by characters: what is spelled letter by letter may be recognized as one word, and a name in another
spelling. English numbers are compared as digits, in whichever way each text writes them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from attune.catalog import NORMALIZERS, find
from attune.scoring.edits import align


def share_words(text: str, recognized: Sequence[str]) -> list[str]:
    """The text cut into a part for each recognized one.

    What was not recognized goes with what is before it, or with the first that follows.
    """
    words = text.split()
    owners = _owners([_plain(word) for word in words], [_plain(each) for each in recognized])
    shares: list[list[str]] = [[] for _ in recognized]
    latest = 0
    for word, owner in zip(words, owners, strict=True):
        latest = max(latest, owner)
        shares[latest].append(word)
    return [" ".join(share) for share in shares]


def _owners(words: Sequence[str], recognized: Sequence[str]) -> Iterator[int]:
    """The recognized text that has most of each word, by the characters beside its own."""
    places = iter([number for number, each in enumerate(recognized) for _ in each])
    latest = next((number for number, each in enumerate(recognized) if each), 0)
    letters = []  # the owner of each character
    for left, right in align("".join(words), "".join(recognized)):
        if right is not None:
            latest = next(places)
        if left is not None:
            letters.append(latest)
    start = 0
    for word in words:
        yield Counter(letters[start : start + len(word)]).most_common(1)[0][0]
        start += len(word)


def _plain(text: str) -> str:
    """Letters and digits alone, in lower case, word by word without spaces; of a text without any, the text."""
    normalize = find(NORMALIZERS, "english")
    words = (normalize(word) or word.lower() for word in text.replace("-", " ").split())
    return "".join(letter for word in words for letter in word if letter.isalnum()) or text.strip()
