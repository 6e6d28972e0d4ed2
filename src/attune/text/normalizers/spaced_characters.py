"""Chinese, Japanese, Thai, Lao, Khmer, Burmese: `basic` with each character as a word, so that WER means something.

These scripts have no spaces between words: the word error rate is then that of characters, and a space that one writer
sets and another does not is no error. A character is a letter with its marks and with what is stacked below it. Words
of other scripts stay whole.
"""

import re
import unicodedata
from functools import cache

from attune.text.normalizers import then
from attune.text.normalizers.basic import normalize as basic
from attune.text.normalizers.thai import NORMALIZER as THAI

_HAN_AND_KANA = (
    r"\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\ufa0e-\ufa29\U00020000-\U0003ffff"
    r"\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001b000-\U0001b16f"
    r"\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
)
_THAI_LAO_BURMESE_KHMER = (
    (0x0E01, 0x0E4E),
    (0x0E81, 0x0EDF),
    (0x1000, 0x109F),
    (0xA9E0, 0xA9FE),
    (0xAA60, 0xAA7F),
    (0x1780, 0x17DD),
)
_VOWELS_AM = "\u0e33\u0eb3"  # letters to Unicode, marks to the eye
_STACKERS = "\u17d2\u1039"  # what comes next is written below


@cache
def _character() -> re.Pattern[str]:
    block = [chr(code) for first, last in _THAI_LAO_BURMESE_KHMER for code in range(first, last + 1)]
    letters = "".join(it for it in block if unicodedata.category(it)[0] == "L" and it not in _VOWELS_AM)
    marks = "".join(it for it in block if unicodedata.category(it)[0] == "M")
    letter = f"[{letters}{_HAN_AND_KANA}]"
    mark = f"[{marks}{_VOWELS_AM}\u3099\u309a]"
    return re.compile(f"{letter}(?:{mark}|(?<=[{_STACKERS}]){letter})*")


def _space(text: str) -> str:
    return _character().sub(r" \g<0> ", text)


NORMALIZER = then(THAI, _space, basic)  # again: an apostrophe may now stand at an edge
