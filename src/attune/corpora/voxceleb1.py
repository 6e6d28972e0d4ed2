"""VoxCeleb1: 1,251 speakers; the identification split, or verification with its trial list.

For verification, `dev.trials.txt` and `test.trials.txt` are written beside the manifests: lines of `1|0 ID ID`, 1 where
both are of one speaker. VoxCeleb1 has no dev trials of its own; these speakers are kept out of training.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.audio.decode import read_audio
from attune.audio.encode import write_audio
from attune.audio.silence import remove_silence
from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, find_files, first_existing, read_fields
from attune.corpora._rows import Row
from attune.errors import DataError
from attune.files import write_text
from attune.types import SAMPLE_RATE

PARTS = {"1": "train", "2": "dev", "3": "test"}
SILENCE = 0.001 * 10 ** (3 / 20)  # SUPERB looks for it below 0.1 % after a gain of -3 dB
ROOTS = ("wav", "dev/wav", "test/wav", "vox1_dev_wav/wav", "vox1_test_wav/wav", "aac", "dev/aac", "test/aac")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which task, and where its list is."""

    task: Annotated[
        Literal["identification", "verification"], Field(description="All speakers in each split, or none in two.")
    ] = "identification"
    split: Annotated[str, Field(description="The identification split, below --from or absolute.")] = "iden_split.txt"
    trials: Annotated[str, Field(description="The verification trials, below --from or absolute.")] = "veri_test.txt"
    dev_speakers: Annotated[int, Field(ge=2, description="Speakers held back for dev trials, in verification.")] = 40
    trim_silence: Annotated[
        bool, Field(description="Copy the recordings without silence, as SUPERB's verification has them.")
    ] = False


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The three parts of the identification split; or of verification, where no two share a speaker."""
    roots = [corpus.folder / root for root in ROOTS if (corpus.folder / root).is_dir()]
    if not roots:
        raise DataError(f"{corpus.source} has no folder {', '.join(ROOTS)}. Give --from the folder that has it.")
    if options.task == "identification":
        listed = first_existing(corpus, options.split)
        splits = {split: _identification(roots, listed, part) for part, split in PARTS.items()}
    else:
        splits = _verification(corpus, roots, first_existing(corpus, options.trials), options.dev_speakers)
    if not options.trim_silence:
        return splits
    copies = corpus.to.absolute() / "audio"
    return {split: (_without_silence(row, copies) for row in rows) for split, rows in splits.items()}


def _identification(roots: list[Path], listed: Path, part: str) -> Iterator[RowOrSkipped]:
    for own, name in read_fields(listed):
        if own not in PARTS:
            yield Skipped(name, "part is not 1, 2 or 3")
        elif own == part:
            yield _row(roots, name.strip())


def _verification(
    corpus: CorpusPaths, roots: list[Path], listed: Path, held_back: int
) -> dict[str, Iterator[RowOrSkipped]]:
    trials = [(kind, first.strip(), second.strip()) for kind, first, second in read_fields(listed, 3)]
    tested = {name.split("/")[0] for _, *names in trials for name in names}
    found = [path.relative_to(root) for root in roots for path in find_files(root, ".wav", ".m4a")]
    names = sorted({path.with_suffix(".wav").as_posix() for path in found})
    others = [name for name in names if name.split("/")[0] not in tested]
    by_hash = sorted({name.split("/")[0] for name in others}, key=lambda name: hashlib.sha256(name.encode()).digest())
    dev = [name for name in others if name.split("/")[0] in by_hash[:held_back]]
    test = sorted({name for _, *pair in trials for name in pair})
    _write_trials(corpus.to / "dev.trials.txt", _dev_trials(dev))
    _write_trials(corpus.to / "test.trials.txt", trials)
    return {
        "train": (_row(roots, name) for name in others if name.split("/")[0] in by_hash[held_back:]),
        "dev": (_row(roots, name) for name in dev),
        "test": (_row(roots, name) for name in test),
    }


def _dev_trials(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """As many of the same speaker as of two: each recording with the speaker's next, and with the next speaker's."""
    speakers = [list(each) for _, each in groupby(names, key=lambda name: name.split("/")[0])]
    for number, own in enumerate(speakers):
        other = speakers[(number + 1) % len(speakers)]
        for index in range(len(own) - 1):
            yield "1", own[index], own[index + 1]
            yield "0", own[index], other[index % len(other)]


def _write_trials(path: Path, trials: Iterable[tuple[str, str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{kind} {first.rpartition('.')[0]} {second.rpartition('.')[0]}\n" for kind, first, second in trials)
    write_text(path, "".join(lines))


def _row(roots: list[Path], name: str) -> RowOrSkipped:
    """The row of `id10001/VIDEO/00001.wav`, or .m4a, in whichever folder it was unpacked to."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return Skipped(name, "path outside the corpus")
    if "/" not in name:
        return Skipped(name, "path is not SPEAKER/VIDEO/FILE")
    paths = [path for root in roots for path in (root / name, (root / name).with_suffix(".m4a"))]
    found = next((path for path in paths if path.is_file()), paths[0])
    speaker = name.split("/")[0]
    return Row(name.rpartition(".")[0], str(found), speaker=speaker, labels={"video": name.split("/")[1]})


def _without_silence(row: RowOrSkipped, to: Path) -> RowOrSkipped:
    """The row with a copy of its recording in which silence is taken out, next to the manifests."""
    if isinstance(row, Skipped) or row.audio is None or not Path(row.audio).is_file():
        return row
    copy = to / f"{row.id}.flac"
    if not copy.exists():
        samples = remove_silence(read_audio(row.audio), SILENCE)
        if not len(samples):
            return row  # a trial may name it
        write_audio(copy, samples, SAMPLE_RATE, "FLAC", "PCM_16")
    return replace(row, audio=str(copy))


CORPUS = Layout(read, Options)
