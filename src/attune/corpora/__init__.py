"""Where utterances come from: manifests of any size, read by row number. A corpus plug-in is a file in this folder."""

from attune.corpora._inspect import inspect_audio, inspect_corpus
from attune.corpora._manifest import Corpus, Manifest, Problem, open_corpus, open_manifest
from attune.corpora._pieces import Pieces
from attune.corpora._remote import bring_manifest
from attune.corpora._sample import Sample
from attune.corpora._select import Selection, require_sound, select

__all__ = [
    "Corpus",
    "Manifest",
    "Pieces",
    "Problem",
    "Sample",
    "Selection",
    "bring_manifest",
    "inspect_audio",
    "inspect_corpus",
    "open_corpus",
    "open_manifest",
    "require_sound",
    "select",
]
