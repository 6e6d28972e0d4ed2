"""Kaldi data directories: wav.scp with plain files (a pipe is never run), segments, text, utt2spk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import Found, Layout, Place, Skipped, pairs_of, slice_of
from attune.corpora._rows import Row
from attune.corpora._scan import audio_path
from attune.errors import DataError

CHANNELS = {"A": 0, "B": 1, "1": 0, "2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the audio is."""

    root: Annotated[str, Field(description="What the paths of wav.scp are relative to.")] = "."


@dataclass(frozen=True, slots=True)
class _Recording:
    audio: str
    channel: int | None = None


def read(place: Place, options: Options) -> dict[str, Iterator[Found]]:
    """The directory itself, or each directory in it that has a wav.scp, by its name."""
    here = (
        [place.folder]
        if (place.folder / "wav.scp").exists()
        else sorted(p.parent for p in place.folder.glob("*/wav.scp"))
    )
    if not here:
        raise DataError(f"{place.source} has no wav.scp, and no folder in it has one.")
    return {folder.name: _rows(folder, Path(options.root).absolute()) for folder in here}


def _rows(folder: Path, root: Path) -> Iterator[Found]:
    recordings = _recordings(folder, root)
    texts, speakers = _table(folder / "text"), _table(folder / "utt2spk")
    if (folder / "segments").exists():
        for name, recording, start, end in pairs_of(folder / "segments", 4):
            if recording not in recordings:
                yield Skipped(name, "a segment of a recording that wav.scp does not have")
                continue
            row = _row(name, recordings[recording], texts, speakers)
            yield row if isinstance(row, Skipped) else slice_of(row, start, end)
    else:
        yield from (_row(name, recording, texts, speakers) for name, recording in recordings.items())


def _recordings(folder: Path, root: Path) -> dict[str, _Recording]:
    files = _table(folder / "wav.scp")
    for name, file in files.items():
        if file.endswith("|"):
            raise DataError(
                f"{folder / 'wav.scp'}: {name} is a command, not a file: {file[:80]}. attune runs no commands "
                "it reads; write the recordings to files first (wav-copy, sph2pipe) and name those in wav.scp."
            )
    recordings = {name: _Recording(audio_path(root, file)) for name, file in files.items()}
    sides = folder / "reco2file_and_channel"
    for name, _, side in pairs_of(sides, 3) if sides.exists() else ():
        if name in recordings:
            recordings[name] = _Recording(recordings[name].audio, _channel(recordings[name].audio, side.strip()))
    return recordings


def _channel(audio: str, side: str) -> int | None:
    """The side of a call; where wav.scp has a file for each side, the file has one channel."""
    import soundfile

    try:
        return CHANNELS.get(side) if soundfile.info(audio).channels > 1 else None
    except (OSError, soundfile.SoundFileError):
        return None


def _table(path: Path) -> Mapping[str, str]:
    return {name: rest.strip() for name, rest in pairs_of(path)} if path.exists() else {}


def _row(name: str, recording: _Recording, texts: Mapping[str, str], speakers: Mapping[str, str]) -> Found:
    if texts and name not in texts:
        return Skipped(name, "no line in text")
    return Row(name, recording.audio, text=texts.get(name), speaker=speakers.get(name), channel=recording.channel)


CORPUS = Layout(read, Options)
