"""OpenSLR 28, room impulse responses and noises for augmentation: `augment.rooms.folder` and `augment.noise.folder`.

`attune prepare openrir --from https://www.openslr.org/resources/28/rirs_noises.zip --to data/openrir` fetches and
unpacks it; both settings then name data/openrir.
"""

from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import CorpusPaths, Layout, NoOptions, RowOrSkipped, find_files, first_existing
from attune.corpora._rows import Row

NOISES = "pointsource_noises"


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """Splits `rooms` and `noises`."""
    root = first_existing(corpus, "RIRS_NOISES", ".")
    first_existing(CorpusPaths(str(root), corpus.to), "simulated_rirs", "real_rirs_isotropic_noises", NOISES)
    return {"rooms": _rows(root, is_noise=False), "noises": _rows(root, is_noise=True)}


def _rows(root: Path, is_noise: bool) -> Iterator[RowOrSkipped]:
    for path in find_files(root, ".wav"):
        if ("noise" in path.stem.lower() or path.parent.name == NOISES) == is_noise:
            yield Row(path.relative_to(root).with_suffix("").as_posix(), str(path), channel=0)


CORPUS = Layout(read)
