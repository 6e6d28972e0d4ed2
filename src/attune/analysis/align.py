"""Align the rows of a manifest with their texts, and make training rows of long recordings.

The folder has `alignments.jsonl`, which grows by a line for each row and is continued where it was cut off, and the
name of the model that they are of; a file for each row in the format that was asked for; and, with a limit for rows,
`rows.jsonl` to train on and `dropped.jsonl` with what was left out and why.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attune import files
from attune.audio.decode import read_utterance
from attune.audio.vad import Span
from attune.corpora import Row, fetch_manifest, open_corpus, write_row
from attune.decoding.aligner import Alignment, AlignmentInput, mean_confidence
from attune.decoding.cuts import LONGEST_PAUSE, WordSpan, cut_at_pauses
from attune.errors import AttuneError, ConfigError, DataError
from attune.files import parse_json
from attune.report.lines import Lines
from attune.report.timed import SPELLINGS, TimedText, timed_text
from attune.site import Site
from attune.types import SAMPLE_RATE, TextSegment, Utterance, Word

ALIGNMENTS, ROWS, DROPPED, ALIGNER = "alignments.jsonl", "rows.jsonl", "dropped.jsonl", "aligner.json"
SECONDS_AT_ONCE = 600.0
PAUSE_SECONDS = 0.5  # between the segments of captions
TOO_LONG, NO_WORDS = "the text is longer than its audio", "the text has no words, only marks"
UNALIGNED = "the row cannot be aligned"

Align = Callable[[Sequence[AlignmentInput]], Sequence[Alignment]]


@dataclass(frozen=True, slots=True)
class CutRules:
    """How long a row of training and a pause in it may be, and how well it must match its audio."""

    max_seconds: float
    max_pause: float = LONGEST_PAUSE
    min_confidence: float = 0.05
    min_seconds: float = 0.3


@dataclass(frozen=True, slots=True)
class Aligning:
    """How far the rows of a manifest are aligned."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """A row of the manifest with its alignment, or why it has none."""

    utterance: Utterance
    alignment: Alignment | None
    seconds: float = 0.0  # of the audio that was read
    problem: str | None = None

    @property
    def complaint(self) -> str | None:
        """The problem as a person reads it among those of other rows."""
        if self.problem in (TOO_LONG, NO_WORDS):
            return f"{self.utterance.where}: utterance {self.utterance.id!r}: {self.problem}"
        return self.problem

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        known: dict[str, Any] = {
            "id": self.utterance.id,
            "text": self.utterance.text,
            "seconds": round(self.seconds, 3),
            "problem": self.problem,
        }
        if self.alignment is None:
            return known
        found = asdict(self.alignment)
        return {**known, "confidence": round(self.alignment.confidence, 4), **found}

    def timed(self) -> TimedText:
        """For the formats of other programs."""
        alignment = self.alignment or Alignment(())
        words = alignment.words
        return TimedText(self.utterance.id, segments_of(words), words, alignment.characters, self.seconds)


@dataclass(frozen=True, slots=True)
class CutSummary:
    """What the training rows are made of, and what was left out: how many rows and words by reason."""

    rows: int
    seconds: float
    total_seconds: float
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ManifestRows:
    """The rows of a manifest, and what is wrong with the others."""

    rows: tuple[Utterance, ...]
    problems: tuple[str, ...]


def read_rows(manifest: str, site: Site) -> ManifestRows:
    """All rows of a manifest; none is an error."""
    with tempfile.TemporaryDirectory() as index:
        corpus = open_corpus("align", [fetch_manifest(manifest, site.cache)], Path(index))
        problems = tuple(f"{each.where}: {each.reason}" for each in corpus.problems)
        if not len(corpus):
            raise DataError("\n  ".join([f"{manifest} has no row to align.", *problems[:20]]))
        return ManifestRows(tuple(corpus), problems)


def align_rows(rows: Iterable[Utterance], align: Align) -> Iterator[AlignedRow]:
    """The rows with their alignments, in order; one that cannot be read or has no text stops no other."""
    waiting: list[tuple[Utterance, AlignmentInput | str]] = []
    seconds = 0.0
    for utterance in rows:
        waiting.append((utterance, _read(utterance)))
        seconds += utterance.seconds
        if seconds >= SECONDS_AT_ONCE:
            yield from _aligned(waiting, align)
            waiting, seconds = [], 0.0
    yield from _aligned(waiting, align)


def _read(utterance: Utterance) -> AlignmentInput | str:
    if not (utterance.text or "").strip() or utterance.audio is None:
        return (
            f"{utterance.where}: utterance {utterance.id!r} has no {'text' if utterance.audio else 'audio'} to align."
        )
    try:
        return AlignmentInput(read_utterance(utterance), utterance.text or "", utterance.language)
    except AttuneError as error:
        return str(error)


def _aligned(waiting: Sequence[tuple[Utterance, AlignmentInput | str]], align: Align) -> Iterator[AlignedRow]:
    found = iter(_answers([each for _, each in waiting if isinstance(each, AlignmentInput)], align))
    for utterance, each in waiting:
        if isinstance(each, str):
            yield AlignedRow(utterance, None, problem=each)
        elif isinstance(answer := next(found), str):
            problem = f"{utterance.where}: utterance {utterance.id!r} cannot be aligned. {answer}"
            yield AlignedRow(utterance, None, problem=problem)
        else:
            yield AlignedRow(utterance, answer, len(each.samples) / SAMPLE_RATE, _problem(answer))


def _answers(inputs: Sequence[AlignmentInput], align: Align) -> list[Alignment | str]:
    """All of them together, or else one by one: what is wrong with one, such as too long a text, stops no other."""
    try:
        return list(align(inputs))
    except DataError as error:
        if len(inputs) == 1:
            return [str(error)]
        return [answer for each in inputs for answer in _answers([each], align)]


def _problem(alignment: Alignment) -> str | None:
    if alignment.words:
        return None
    return TOO_LONG if alignment.missing else NO_WORDS


def require_own_folder(folder: Path, model: str) -> None:
    """Refuse the folder of another model, whose alignments would be taken for those of this one."""
    name = str(Path(model).absolute()) if Path(model).exists() else model
    path = folder / ALIGNER
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (other := json.loads(path.read_text(encoding="utf-8"))["model"]) != name:
            raise ConfigError(f"{folder} has the alignments of {other}. Name another folder: --to FOLDER.")
    files.require_writable(path, "Name another folder: --to FOLDER.")
    files.write_text(path, json.dumps({"model": name}, ensure_ascii=False) + "\n")


def align_to_folder(
    manifest: str, align: Align, folder: Path, format: str | None, site: Site
) -> Generator[Aligning, None, list[str]]:
    """Align what is not in the folder yet; returns the problems of rows that could not be aligned."""
    read = read_rows(manifest, site)
    _forget_changed(folder / ALIGNMENTS, read.rows)
    lines = Lines(folder / ALIGNMENTS)
    rows, total = [each for each in read.rows if each.id not in lines.ids], len(read.rows)
    if format:
        _write_files(folder, read.rows, format)
    yield Aligning(total - len(rows), total)
    problems = list(read.problems)
    for done, row in enumerate(align_rows(rows, align), total - len(rows) + 1):
        if row.complaint:
            problems.append(row.complaint)
        elif format:
            _write_file(folder, format, row.timed())
        values = row.as_json()
        lines.add(values.pop("id"), **values)
        yield Aligning(done, total)
    return problems


def _write_files(folder: Path, rows: Sequence[Utterance], format: str) -> None:
    """The files of what is aligned already, which may have been without or of another format."""
    known = {row.id for row in rows}
    for line in files.split_lines((folder / ALIGNMENTS).read_text(encoding="utf-8")):
        found = parse_json(line)
        if found["id"] in known and not found["problem"]:
            words, characters = ([Word(**each) for each in found[name]] for name in ("words", "characters"))
            _write_file(folder, format, TimedText(found["id"], segments_of(words), words, characters, found["seconds"]))


def _write_file(folder: Path, format: str, timed: TimedText) -> None:
    path = folder / f"{files.file_stem(timed.name)}{SPELLINGS.get(format, format)}"
    text = timed_text(format, timed)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def _forget_changed(path: Path, rows: Sequence[Utterance]) -> None:
    """Take away the alignments of texts that were corrected since, and of rows that had a problem: it may be gone."""
    texts = {row.id: row.text for row in rows}
    whole = path.read_bytes().rpartition(b"\n")[0].decode(errors="replace") if path.is_file() else ""
    lines = files.split_lines(whole)
    kept = [line for line in lines if _is_current(line, texts)]
    if len(kept) < len(lines):
        files.write_text(path, "".join(f"{line}\n" for line in kept))


def _is_current(line: str, texts: Mapping[str, str | None]) -> bool:
    """Whether an alignment is of the text that its row has; what is no alignment is reported elsewhere."""
    try:
        found = json.loads(line)
        is_same = "text" not in found or texts.get(found["id"], found["text"]) == found["text"]
        return is_same and not found["problem"]
    except (ValueError, KeyError, TypeError):
        return True


def segments_of(words: Sequence[Word]) -> list[TextSegment]:
    """Words between pauses as segments, for captions."""
    bounds = [0, *(at for at in range(1, len(words)) if words[at].start - words[at - 1].end > PAUSE_SECONDS)]
    parts = [words[first:last] for first, last in zip(bounds, [*bounds[1:], len(words)], strict=True)]
    return [TextSegment(part[0].start, part[-1].end, " ".join(word.text for word in part)) for part in parts if part]


def cut_rows(manifest: str, folder: Path, rules: CutRules, site: Site) -> CutSummary:
    """Write the training rows of all alignments of a folder, and what was dropped with its reason."""
    read = read_rows(manifest, site)
    by_id = {utterance.id: utterance for utterance in read.rows}
    dropped: Counter[str] = Counter({"the row is damaged": len(read.problems)} if read.problems else {})
    count, seconds, total = 0, 0.0, 0.0
    with (
        files.completed(folder / ROWS) as kept_path,
        files.completed(folder / DROPPED) as dropped_path,
        kept_path.open("w", encoding="utf-8") as kept,
        dropped_path.open("w", encoding="utf-8") as lost,
    ):
        for line in files.split_lines((folder / ALIGNMENTS).read_text(encoding="utf-8")):
            found = parse_json(line)
            if found["id"] not in by_id:
                continue
            total += found["seconds"]
            for row, reason, detail in _cut(by_id[found["id"]], found, rules, folder):
                if reason:
                    dropped[reason] += 1
                    lost.write(json.dumps({**asdict_of(row), "reason": reason, **detail}, ensure_ascii=False) + "\n")
                else:
                    count, seconds = count + 1, seconds + (row.seconds or 0.0)
                    kept.write(write_row(row) + "\n")
    return CutSummary(count, seconds, total, dict(dropped.most_common()))


def asdict_of(row: Row) -> dict[str, Any]:
    """A row as its line of a manifest has it."""
    values: dict[str, Any] = json.loads(write_row(row))
    return values


def _cut(
    utterance: Utterance, found: Mapping[str, Any], rules: CutRules, folder: Path
) -> Iterator[tuple[Row, str | None, Mapping[str, float | str]]]:
    """The rows of an utterance, each with the reason to drop it if there is one, and what is behind that."""
    if problem := found["problem"]:
        row = _row(utterance, utterance.id, (utterance.start or 0.0, utterance.seconds), utterance.text, folder)
        yield (row, problem, {}) if problem in (TOO_LONG, NO_WORDS) else (row, UNALIGNED, {"problem": problem})
        return
    words = [Word(**each) for each in found["words"]]
    foreign = [Span(**each) for each in found["foreign"]]
    spans = cut_at_pauses(words, found["seconds"], rules.max_seconds, foreign, rules.max_pause)
    for number, span in enumerate(spans):
        own = words[span.first : span.last]
        place = ((utterance.start or 0.0) + span.start, span.end - span.start)
        name = utterance.id if len(spans) == 1 else f"{utterance.id}-{number:04d}"
        row = _row(utterance, name, place, " ".join(word.text for word in own), folder)
        yield row, *_reason(own, span, rules)
    for each in foreign:
        place = ((utterance.start or 0.0) + each.start, each.end - each.start)
        yield _row(utterance, f"{utterance.id}@{each.start:g}", place, "", folder), "speech without text", {}
    if found["missing"]:
        end = ((utterance.start or 0.0) + found["seconds"], 0.0)
        text = " ".join(found["missing"])
        yield _row(utterance, f"{utterance.id}-end", end, text, folder), "text after the end of the audio", {}


def _reason(words: Sequence[Word], span: WordSpan, rules: CutRules) -> tuple[str | None, dict[str, float]]:
    confidence, seconds = mean_confidence(words), span.end - span.start
    if confidence < rules.min_confidence:
        return "the text does not match the audio", {"confidence": round(confidence, 4)}
    if seconds > rules.max_seconds + 1e-6:
        return "no pause to cut at", {"seconds": round(seconds, 3)}
    if seconds < rules.min_seconds:
        return "too short", {"seconds": round(seconds, 3)}
    return None, {}


def _row(utterance: Utterance, name: str, place: tuple[float, float], text: str | None, folder: Path) -> Row:
    """A part of an utterance, whose audio is found from the folder of the new manifest."""
    audio = utterance.audio
    path = os.path.relpath(audio, folder.absolute()) if isinstance(audio, Path) else audio
    return Row(
        id=name,
        audio=path,
        start=round(place[0], 3),
        seconds=round(place[1], 3),
        text=text,
        speaker=utterance.speaker,
        language=utterance.language,
        labels=utterance.labels,
        channel=utterance.channel,
        first_byte=utterance.first_byte,
        byte_count=utterance.byte_count,
        row=utterance.row,
    )
