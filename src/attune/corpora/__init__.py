"""Where utterances come from: manifests of any size, read by row number. A corpus plug-in is a file in this folder."""

from attune.corpora._inspect import inspect_audio, inspect_corpus
from attune.corpora._layout import Found, Layout, NoOptions, Place, Skipped
from attune.corpora._manifest import Corpus, Manifest, RowProblem, open_corpus, open_manifest
from attune.corpora._pieces import ChunkedCorpus
from attune.corpora._prepare import Prepared, prepare_split
from attune.corpora._remote import bring_manifest
from attune.corpora._rows import Row
from attune.corpora._sample import CorpusSample
from attune.corpora._scan import utterance_of
from attune.corpora._select import Selection, require_sound, select
from attune.corpora._shards import expand as expand_shards
from attune.corpora._shards import samples_of

__all__ = [
    "ChunkedCorpus",
    "Corpus",
    "CorpusSample",
    "Found",
    "Layout",
    "Manifest",
    "NoOptions",
    "Place",
    "Prepared",
    "Row",
    "RowProblem",
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
