"""Texts with times in the formats of other programs: SubRip, WebVTT, ASS, CTM and Praat's TextGrid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from attune.report.subtitles import USUAL_RULES, SubtitleRules, cut_cues, words_between
from attune.types import TextSegment, Word

TIMED = (".srt", ".vtt", ".ass", ".textgrid", ".ctm")
SEVERAL = (".ctm",)  # of these, one file may have several recordings
SPELLINGS = {".textgrid": ".TextGrid"}  # of suffixes

_ASS_HEAD = """\
[Script Info]
ScriptType: v4.00+
PlayResX: 1920
PlayResY: 1080

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, \
StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,64,&H00FFFFFF,&H00808080,&H00000000,&H80000000,0,0,0,0,100,100,0,0,1,3,1,2,60,60,50,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""


@dataclass(frozen=True, slots=True)
class TimedText:
    """What is known of a recording: its segments, its words and, after an alignment, its characters."""

    name: str
    segments: Sequence[TextSegment]
    words: Sequence[Word]
    characters: Sequence[Word] = ()
    seconds: float | None = None  # how long it is


def timed_text(suffix: str, recording: TimedText, rules: SubtitleRules = USUAL_RULES) -> str:
    """The whole file of a recording."""
    match suffix:
        case ".ctm":
            return "".join(_ctm(recording))
        case ".textgrid":
            return "".join(_text_grid(recording))
    cues = cut_cues(recording.segments, recording.words, rules)
    match suffix:
        case ".ass":
            ordered = sorted(recording.words, key=lambda word: word.start)
            return _ASS_HEAD + "".join(_dialogue(cue, ordered) for cue in cues)
        case ".srt":
            return "\n".join(f"{number}\n{_cue(cue, ',')}" for number, cue in enumerate(cues, 1))
        case _:
            return "\n".join(["WEBVTT\n", *(_cue(cue, ".") for cue in cues)])


def _cue(cue: TextSegment, mark: str) -> str:
    # An empty line would end a cue, and an arrow begin its times.
    text = cue.text.replace("-->", "→")
    if mark == ".":
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{_clock(cue.start, mark)} --> {_clock(cue.end, mark)}\n{text}\n"


def _clock(seconds: float, mark: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{mark}{milliseconds:03}"


def _dialogue(cue: TextSegment, words: Sequence[Word]) -> str:
    """A line of an ASS script; its words are lit one after another (karaoke) where they have times."""
    own = words_between(words, cue.start, cue.end)
    # What is markup in a script is written as FFmpeg writes it: \{, and a backslash that a word joiner follows.
    text = cue.text.replace("\\", "\\\u2060").replace("{", "\\{").replace("}", "\\}")
    parts = text.replace("\n", " \\N").split(" ")
    bounds = list(accumulate((len(word.text.split()) for word in own), initial=0))  # a mark may stand beside its word
    if own and bounds[-1] == len(parts):
        parts = [" ".join(parts[first:last]) for first, last in pairwise(bounds)]
        following = [word.start for word in own[1:]] + [max(own[-1].end, own[-1].start)]
        lasting = [round((later - word.start) * 100) for word, later in zip(own, following, strict=True)]
        parts = [f"{{\\k{each}}}{part}" for each, part in zip(lasting, parts, strict=True)]
    start, end = (_clock(each, ".").removeprefix("0")[:-1] for each in (cue.start, cue.end))
    return f"Dialogue: 0,{start},{end},Default,,0,0,0,,{' '.join(parts)}\n"


def _ctm(recording: TimedText) -> Iterator[str]:
    """NIST's: recording, channel, start, duration, word, confidence."""
    name = "_".join(recording.name.split())
    for word in recording.words:
        if not word.text.strip():
            continue  # a line without a word would have its confidence for one
        lasts = max(0.0, word.end - word.start)
        yield f"{name} 1 {word.start:.3f} {lasts:.3f} {'_'.join(word.text.split())} {word.confidence:.4f}\n"


def _text_grid(recording: TimedText) -> Iterator[str]:
    tiers = {"words": recording.words, "characters": recording.characters}
    known = {name: list(_intervals(words)) for name, words in tiers.items() if words}
    if not known:
        spans = [Word(each.text, each.start, each.end, 1.0) for each in recording.segments]
        known = {"segments": list(_intervals(spans))}
    ends = [*(each[-1].end for each in known.values() if each), *(each.end for each in recording.segments)]
    last = round(max([recording.seconds or 0.0, *ends]), 3) or 0.001
    yield f'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = {last:.3f}\ntiers? <exists>\n'
    yield f"size = {len(known)}\nitem []:\n"
    for number, (name, intervals) in enumerate(known.items(), 1):
        yield from _tier(number, name, intervals, last)


def _intervals(words: Sequence[Word]) -> Iterator[Word]:
    """Words and the silences before them, without overlaps; each lasts a millisecond at least, as Praat requires."""
    place = 0.0
    for word in words:
        start = max(place, round(word.start, 3))
        end = max(round(word.end, 3), round(start + 0.001, 3))
        if start > place:
            yield Word("", place, start, 1.0)
        yield Word(word.text, start, end, word.confidence)
        place = end


def _tier(number: int, name: str, intervals: Sequence[Word], last: float) -> Iterator[str]:
    end = intervals[-1].end if intervals else 0.0
    whole = [*intervals, Word("", end, last, 1.0)] if end < last else intervals
    yield f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{name}"\n        xmin = 0\n'
    yield f"        xmax = {last:.3f}\n        intervals: size = {len(whole)}\n"
    for place, each in enumerate(whole, 1):
        text = each.text.replace('"', '""')
        yield f"        intervals [{place}]:\n            xmin = {each.start:.3f}\n            xmax = {each.end:.3f}\n"
        yield f'            text = "{text}"\n'
