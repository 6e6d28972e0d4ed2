"""Numbers in English words to digits, by the rules of Whisper's normalizer, its oddities included.

`nineth` is known and `ninth` is not, the letter `o` is a zero, `$0 55` is 55 cents. To mend them would be to report
other error rates than everybody else.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Kind = Literal["other", "digits", "zero", "ones", "tens", "multiplier", "sign", "currency", "percent", "special"]


@dataclass(frozen=True, slots=True)
class _Word:
    """A word and what it means to a number: its value, and what is written before or after the digits."""

    text: str
    kind: Kind = "other"
    value: int = 0
    affix: str = ""


_ONES = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_THOUSANDS = (
    "thousand million billion trillion quadrillion quintillion sextillion septillion octillion nonillion decillion"
)
_ODD_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "twelve": "twelfth"}
_SIGNS = {"minus": "-", "negative": "-", "plus": "+", "positive": "+"}
_CURRENCIES = {"pound": "£", "euro": "€", "dollar": "$", "cent": "¢"}
_PREFIXES = "-+£€$¢"
_REPEATS = {"double": 2, "triple": 3}


def _inflected(text: str, kind: Kind, value: int) -> Iterator[_Word]:
    """A number's name with its plural and its ordinal: six, sixes, sixth."""
    yield _Word(text, kind, value)
    plural = "sixes" if text == "six" else re.sub("y$", "ie", text) + "s"
    yield _Word(plural, kind, value, "s")
    ordinal = _ODD_ORDINALS.get(text) or re.sub("t$", "", re.sub("y$", "ie", text)) + "th"
    yield _Word(ordinal, kind, value, ordinal[-2:])


def _known_words() -> Iterator[_Word]:
    yield from (_Word(text, "zero") for text in ("o", "oh", "zero"))
    yield _Word("zeroth", "ones", 0, "th")
    for value, text in enumerate(_ONES.split(), start=1):
        yield from _inflected(text, "ones", value)
    for value, text in enumerate(_TENS.split(), start=2):
        yield from _inflected(text, "tens", 10 * value)
    yield from _inflected("hundred", "multiplier", 100)
    for power, text in enumerate(_THOUSANDS.split(), start=1):
        yield from _inflected(text, "multiplier", 1000**power)
    yield from (_Word(text, "sign", affix=sign) for text, sign in _SIGNS.items())
    for text, symbol in _CURRENCIES.items():
        yield from (_Word(form, "currency", affix=symbol) for form in (text, f"{text}s"))
    yield from (_Word(text, "percent", affix="%") for text in ("percent", "per"))
    yield from (_Word(text, "special") for text in ("and", "point", *_REPEATS))


_KNOWN = {word.text: word for word in _known_words()}
_NO_WORD = _Word("")
_DIGITS = re.compile(rf"[{_PREFIXES}]?\d+(\.\d+)?")


def digits(text: str) -> str:
    """The text with its numbers in digits: `twenty one dollars` to `$21`, `one oh one` to `101`."""
    words = [_word(text) for text in _spaced(text).split()]
    reader = _Reader()
    used_up = False
    for previous, word, following in zip([_NO_WORD, *words], words, [*words[1:], _NO_WORD], strict=False):
        used_up = not used_up and reader.read(word, previous, following)
    reader.finish()
    return _with_cents(" ".join(reader.written))


class _Reader:
    """Reads word by word; `value` is the number so far, a str where it is being spelled digit by digit."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.value: int | str | None = None
        self.prefix = ""

    def write(self, text: int | str) -> None:
        """Write a word or number behind the prefix that waits for it, and begin anew."""
        self.written.append(f"{self.prefix}{text}")
        self.value, self.prefix = None, ""

    def finish(self) -> None:
        """Write the number so far, if there is one."""
        if self.value is not None:
            self.write(self.value)

    def read(self, word: _Word, previous: _Word, following: _Word) -> bool:
        """Take one word in; True if the following one is used up with it."""
        match word.kind:
            case "digits":
                self._read_digits(word.text)
            case "zero":
                self._spell("0")
            case "ones" | "tens":
                self._count(self._joined(word, previous), word.affix)
            case "multiplier":
                self._multiply(word)
            case "sign" if _is_numeric(following):
                self.finish()
                self.prefix = word.affix
            case "currency" if self.value is not None:
                self.prefix = word.affix
                self.write(self.value)
            case "percent" if self.value is not None and (word.text == "percent" or following.text == "cent"):
                self.write(f"{self.value}{word.affix}")
                return word.text == "per"
            case "special" if _is_numeric(following):
                return self._read_special(word, previous, following)
            case _:
                self.finish()
                self.write(word.text)
        return False

    def _read_digits(self, text: str) -> None:
        if isinstance(self.value, str) and self.value.endswith("."):
            self.value += text
            return
        self.finish()
        if text[0] in _PREFIXES:
            self.prefix, text = text[0], text[1:]
        whole = _whole(text)
        self.value = text if whole is None else whole

    def _spell(self, more: str) -> None:
        self.value = f"{self.value or ''}{more}"

    def _count(self, value: int | str, suffix: str) -> None:
        """A suffix ends a number: nothing counts on after `twenty first`."""
        self.value = value
        if suffix:
            self.write(f"{value}{suffix}")

    def _joined(self, word: _Word, previous: _Word) -> int | str:
        """The number so far with a word below a hundred: added where there is room (200 + 5), else put behind it."""
        if self.value is None:
            return word.value
        follows_tens = previous.kind == "tens" and not previous.affix
        follows_ones = previous.kind == "ones" and not previous.affix
        if isinstance(self.value, str) or (word.kind == "ones" and follows_ones):
            if word.value < 10 and follows_tens:
                return f"{str(self.value)[:-1]}{word.value}"
            return f"{self.value}{word.value}"
        room = 10 if word.value < 10 else 100
        return self.value + word.value if self.value % room == 0 else f"{self.value}{word.value}"

    def _multiply(self, word: _Word) -> None:
        product = self._times(word.value)
        if product is None:
            self.finish()
            product = word.value
        self._count(product, word.affix)

    def _times(self, multiplier: int) -> int | None:
        """None where the product would not be a whole number."""
        if self.value is None:
            return multiplier
        if isinstance(self.value, str):
            return _whole(self.value, multiplier)
        thousands, rest = divmod(self.value, 1000)
        return thousands * 1000 + rest * multiplier

    def _read_special(self, word: _Word, previous: _Word, following: _Word) -> bool:
        """`and`, `point`, `double` and `triple` before a number."""
        spells_a_digit = following.kind == "zero" or (following.kind == "ones" and not following.affix)
        if word.text in _REPEATS and spells_a_digit:
            self._spell(str(following.value) * _REPEATS[word.text])
            return True
        if word.text == "point":
            if spells_a_digit or following.kind == "digits" or (following.kind == "tens" and not following.affix):
                self._spell(".")
            return False
        is_within_number = word.text == "and" and previous.kind == "multiplier" and not previous.affix
        if not is_within_number:
            self.finish()
            self.write(word.text)
        return False


def _word(text: str) -> _Word:
    return _KNOWN.get(text) or _Word(text, "digits" if _DIGITS.fullmatch(text) else "other")


def _is_numeric(word: _Word) -> bool:
    """Whether a number may go on with this word. Digits behind a currency symbol begin a new one."""
    return word.kind != "other" and word.text[0] not in _PREFIXES


def _whole(text: str, multiplier: int = 1) -> int | None:
    if len(text) > 1000:  # Python refuses to write integers of more than 4300 digits
        return None
    try:
        number = Fraction(text) * multiplier
    except ValueError:  # `.` or `1.2.3`
        return None
    return number.numerator if number.denominator == 1 else None


def _spaced(text: str) -> str:
    """`two and a half` as `two point five`; letters and digits apart, but for ordinals and plurals (`1st`, `1960s`)."""
    text = " ".join(_with_halves(re.split(r"\band\s+a\s+half\b", text)))
    text = re.sub(r"([a-z])([0-9])", r"\1 \2", text)
    text = re.sub(r"([0-9])([a-z])", r"\1 \2", text)
    return re.sub(r"([0-9])\s+(st|nd|rd|th|s)\b", r"\1\2", text)


def _with_halves(segments: Sequence[str]) -> Iterator[str]:
    for segment in segments[:-1]:
        words = segment.split()
        if words:
            last = _KNOWN.get(words[-1], _NO_WORD)
            is_number = last.kind in ("zero", "ones", "tens", "multiplier") and not last.affix
            yield segment
            yield "point five" if is_number else "and a half"
    if segments[-1].strip():
        yield segments[-1]


def _with_cents(text: str) -> str:
    """`$2 and ¢7` as `$2.07`, `$0.07` as `¢7`; and a lone 1 as a word, which it mostly is."""
    text = re.sub(r"([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b", lambda m: f"{m[1]}{m[2]}.{int(m[3]):02d}", text)
    text = re.sub(r"[€£$]0.([0-9]{1,2})\b", lambda m: f"¢{int(m[1])}", text)
    return re.sub(r"\b1(s?)\b", r"one\1", text)
