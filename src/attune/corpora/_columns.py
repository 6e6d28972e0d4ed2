"""Which column of a table is what: by its usual names, and audio and text also by what their cells look like."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attune.corpora._layout import AUDIO_FILES
from attune.errors import DataError
from attune.sources import is_address

USUAL = {  # in small letters, without spaces, accents and signs
    "audio": (
        *("audio", "audiofilepath", "audiopath", "audiofile", "path", "wav", "wavpath", "wavfile", "wavfilename"),
        *("file", "filename", "filepath", "recording", "clip", "mp3", "flac", "datei", "fichier", "archivo", "arquivo"),
    ),
    "text": (
        *("text", "sentence", "transcript", "transcription", "transcripts", "normalizedtext", "normalizedtranscript"),
        *("words", "utterance", "reference", "caption", "phrase"),
        *("transkript", "transkription", "satz", "texte", "texto", "testo", "tekst", "frase", "oracion", "zdanie"),
        *("transcripcion", "transcricao", "trascrizione", "transkrypcja", "текст", "предложение", "сказ", "речення"),
    ),
    "id": ("id", "uttid", "utteranceid", "segmentid", "clipid"),
    "speaker": (
        "speaker",
        "speakerid",
        "spk",
        "spkid",
        "clientid",
        "speakername",
        "talker",
        "reader",
        "voice",
        "sprecher",
        "sprecherin",
        "locuteur",
        "hablante",
        "locutor",
    ),
    "language": ("language", "lang", "locale", "sprache", "langue", "idioma"),
    "start": ("start", "offset", "starttime", "startseconds", "begin"),
    "end": ("end", "endtime", "endseconds", "stop"),
    "seconds": ("seconds", "duration", "durationseconds", "dauer", "duree", "duracion", "duracao", "durata"),
    "split": ("split", "subset", "set", "partition"),
}
SPLITS = {
    "training": "train",
    "validation": "dev",
    "valid": "dev",
    "val": "dev",
    "development": "dev",
    "testing": "test",
}
FOLDERS = ("", "clips", "wavs", "wav", "audio")  # that paths are relative to, below the table's own
SUFFIXES = ("", ".wav", ".mp3", ".flac")  # that some tables leave out


@dataclass(frozen=True, slots=True)
class Columns:
    """The column of each field; what a table does not have is None."""

    audio: str
    text: str | None = None
    id: str | None = None
    speaker: str | None = None
    language: str | None = None
    start: str | None = None
    end: str | None = None
    seconds: str | None = None
    split: str | None = None
    labels: tuple[str, ...] = field(default=(), kw_only=True)

    def describe(self) -> str:
        """One line: audio = Filename, text = Transcript …"""
        fields = {name: getattr(self, name) for name in USUAL}
        found = [f"{name} = {column}" for name, column in fields.items() if column]
        return ", ".join([*found, *([f"labels = {', '.join(self.labels)}"] if self.labels else [])])


def guess_columns(
    path: Path, header: Sequence[str], records: Iterable[Mapping[str, str]], given: Mapping[str, str | None]
) -> Columns:
    """The columns of a table; `given` names have the last word, and `records` are its first ones."""
    found, seen = dict(given), [record for record in records if isinstance(record, Mapping)]
    taken = {name for name in given.values() if name}
    plain = {_plain(name): name for name in reversed(header) if name not in taken}
    for what, names in USUAL.items():
        if not found.get(what):
            found[what] = next((plain.pop(name) for name in names if name in plain), None)
    audio = found.pop("audio") or _audio_like(header, seen)
    if not audio:
        raise DataError(
            f"{path}: cannot tell which column has the audio. Add audio=COLUMN, one of: {', '.join(header) or 'none'}."
        )
    if not found["start"]:  # a duration is trusted for a segment; a whole recording is measured
        found |= {"end": None, "seconds": given.get("seconds")}
    if not found["text"]:
        used = {audio, *found.values()}
        found["text"] = _text_like([name for name in header if name not in used], seen)
    return Columns(audio, *(found[name] for name in USUAL if name != "audio"))


def other_columns(header: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """The columns that are no field: labels, as in manifests."""
    used = {getattr(columns, name) for name in USUAL}
    measured = {_plain(name) for name in header} & {*USUAL["seconds"], "durationms", ""}
    return tuple(name for name in header if name not in used and _plain(name) not in measured)


def split_name(value: str) -> str:
    """The split that a cell names, under its usual name."""
    name = re.sub(r"[^\w-]+", "_", value.strip().casefold()).strip("_")
    return SPLITS.get(name, name)


def find_audio(folder: Path, paths: Iterable[str]) -> tuple[Path, str]:
    """The folder that audio paths are relative to, and the suffix they lack: the first under which one exists."""
    tried = list(paths)
    for name in FOLDERS:
        for suffix in SUFFIXES:
            if any(is_address(path) or (folder / name / f"{path}{suffix}").is_file() for path in tried):
                return folder / name, suffix
    return folder, ""


def _plain(name: str) -> str:
    apart = unicodedata.normalize("NFKD", name.casefold())  # an accent is a character that is no letter
    return re.sub(r"[\W_]", "", "".join(each for each in apart if not unicodedata.combining(each)))


def _text_like(header: Sequence[str], seen: Sequence[Mapping[str, str]]) -> str | None:
    """The one column whose cells are words with spaces between them, mostly; None where two are."""
    texts = {name: sum(" " in record.get(name, "").strip() for record in seen) for name in header}
    likely = [name for name, count in texts.items() if 2 * count > len(seen)]
    return likely[0] if len(likely) == 1 else None


def _audio_like(header: Sequence[str], seen: Sequence[Mapping[str, str]]) -> str | None:
    """The first column whose cells end as audio files do."""
    for name in header:
        cells = [record[name].lower() for record in seen if record.get(name)]
        if cells and all(cell.endswith(AUDIO_FILES) for cell in cells):
            return name
    return None
