"""Where utterances come from: manifests of any size, read by row number. A corpus plug-in is a file in this folder."""

from attune.corpora._inspect import inspect_audio, inspect_corpus
from attune.corpora._layout import Found, Layout, NoOptions, Place, Skipped
from attune.corpora._manifest import Corpus, Manifest, Problem, open_corpus, open_manifest
from attune.corpora._pieces import Pieces
from attune.corpora._prepare import Prepared, prepare_split
from attune.corpora._remote import bring_manifest
from attune.corpora._rows import Row
from attune.corpora._sample import Sample
from attune.corpora._scan import utterance_of
from attune.corpora._select import Selection, require_sound, select
from attune.corpora._shards import expand as expand_shards
from attune.corpora._shards import samples_of

__all__ = [
    "Corpus",
    "Found",
    "Layout",
    "Manifest",
    "NoOptions",
    "Pieces",
    "Place",
    "Prepared",
    "Problem",
    "Row",
    "Sample",
    "Selection",
    "Skipped",
    "bring_manifest",
    "expand_shards",
    "inspect_audio",
    "inspect_corpus",
    "open_corpus",
    "open_manifest",
    "prepare_split",
    "require_sound",
    "samples_of",
    "select",
    "utterance_of",
]
