"""English by Whisper's rules: numbers in digits, contractions written out, American spelling by attune's own list.

`whisper_english` differs in one thing: it spells by Whisper's list, which comes with another package. Made for scoring
and not for text to learn from: like Whisper's, it is not the same twice as once where digits have leading zeros.
"""

from attune.text.normalizers import _english_rules
from attune.text.normalizers._english_spelling import american_spellings


def normalize(text: str) -> str:
    """English text as Whisper's normalizer has it, up to words that only one of the two spelling lists knows."""
    return _english_rules.normalize(text, american_spellings())


NORMALIZER = normalize
