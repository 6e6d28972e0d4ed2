"""Kaldi data directories: wav.scp with plain files (pipes are refused), segments, text, utt2spk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, cut_segment, parse_float, read_fields
from attune.corpora._rows import Row
from attune.corpora._scan import resolve_audio
from attune.errors import DataError

CHANNELS = {"A": 0, "B": 1, "1": 0, "2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[str, Field(description="Folder that the paths of wav.scp are relative to.")] = "."


@dataclass(frozen=True, slots=True)
class _Recording:
    audio: str
    channel: int | None = None


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The directory itself, or each subdirectory with a wav.scp, by name."""
    here = (
        [corpus.folder]
        if (corpus.folder / "wav.scp").exists()
        else sorted(p.parent for p in corpus.folder.glob("*/wav.scp"))
    )
    if not here:
        raise DataError(f"{corpus.source} and its folders have no wav.scp. Give --from a Kaldi data folder.")
    return {folder.name: _rows(folder, Path(options.root).absolute()) for folder in here}


def _rows(folder: Path, root: Path) -> Iterator[RowOrSkipped]:
    recordings = _recordings(folder, root)
    texts, speakers = _table(folder / "text"), _table(folder / "utt2spk")
    if (folder / "segments").exists():
        for name, recording, start, end in read_fields(folder / "segments", 4):
            if recording not in recordings:
                yield Skipped(name, "recording of the segment is not in wav.scp")
                continue
            row = _row(name, recordings[recording], texts, speakers)
            yield row if isinstance(row, Skipped) else _segment(row, start, end)
    else:
        yield from (_row(name, recording, texts, speakers) for name, recording in recordings.items())


def _segment(row: Row, start: str, end: str) -> RowOrSkipped:
    """As `cut_segment`; an end of -1 is that of the recording."""
    if parse_float(end) != -1:
        return cut_segment(row, start, end)
    begin = parse_float(start)
    if begin is None or begin < 0:
        return Skipped(f"{row.id}: {start} to {end}", "invalid segment times")
    return replace(row, start=begin)


def _recordings(folder: Path, root: Path) -> dict[str, _Recording]:
    files = _table(folder / "wav.scp")
    for name, file in files.items():
        if file.endswith("|"):
            raise DataError(
                f"{folder / 'wav.scp'}: {name} is a command, not a file: {file[:80]}. attune does not run commands. "
                "Write the recordings to files (wav-copy, sph2pipe), and put those in wav.scp."
            )
    recordings = {name: _Recording(resolve_audio(root, file)) for name, file in files.items()}
    sides = folder / "reco2file_and_channel"
    for name, _, side in read_fields(sides, 3) if sides.exists() else ():
        if name in recordings:
            recordings[name] = _Recording(recordings[name].audio, _channel(recordings[name].audio, side.strip()))
    return recordings


def _channel(audio: str, side: str) -> int | None:
    """The channel of a call's side; None if wav.scp has a mono file for each side."""
    import soundfile

    try:
        return CHANNELS.get(side) if soundfile.info(audio).channels > 1 else None
    except (OSError, soundfile.SoundFileError):
        return None


def _table(path: Path) -> Mapping[str, str]:
    return {name: rest.strip() for name, rest in read_fields(path)} if path.exists() else {}


def _row(name: str, recording: _Recording, texts: Mapping[str, str], speakers: Mapping[str, str]) -> RowOrSkipped:
    if texts and name not in texts:
        return Skipped(name, "no transcript in text")
    return Row(name, recording.audio, text=texts.get(name), speaker=speakers.get(name), channel=recording.channel)


CORPUS = Layout(read, Options)
