"""Where utterances come from: manifests of any size, read by row number. A corpus plug-in is a file in this folder."""

from attune.corpora._chunked import ChunkedCorpus
from attune.corpora._detect import detect_corpus, is_archive, unpacked_root
from attune.corpora._inspect import inspect_audio, inspect_corpus
from attune.corpora._layout import CORPORA, CorpusPaths, Layout, NoOptions, RowOrSkipped, Skipped
from attune.corpora._leakage import Leak, find_leaks
from attune.corpora._manifest import Corpus, Manifest, RowProblem, open_corpus, open_manifest
from attune.corpora._manifest_rows import complete_rows
from attune.corpora._parquet import SHARDS, read_samples
from attune.corpora._prepare import Prepared, prepare_split, remove_splits
from attune.corpora._ratios import assign_groups
from attune.corpora._remote import fetch_manifest
from attune.corpora._rows import Row, write_row
from attune.corpora._sample import CorpusSample, sample_corpus
from attune.corpora._scan import to_utterance
from attune.corpora._select import REMOVE, Selection, require_valid_rows, select
from attune.corpora._shards import expand_shards, read_shard

# The former names, which corpus plug-ins of other packages import.
Place, Found = CorpusPaths, RowOrSkipped

__all__ = [
    "CORPORA",
    "REMOVE",
    "SHARDS",
    "ChunkedCorpus",
    "Corpus",
    "CorpusPaths",
    "CorpusSample",
    "Found",
    "Layout",
    "Leak",
    "Manifest",
    "NoOptions",
    "Place",
    "Prepared",
    "Row",
    "RowOrSkipped",
    "RowProblem",
    "Selection",
    "Skipped",
    "assign_groups",
    "complete_rows",
    "detect_corpus",
    "expand_shards",
    "fetch_manifest",
    "find_leaks",
    "inspect_audio",
    "inspect_corpus",
    "is_archive",
    "open_corpus",
    "open_manifest",
    "prepare_split",
    "read_samples",
    "read_shard",
    "remove_splits",
    "require_valid_rows",
    "sample_corpus",
    "select",
    "to_utterance",
    "unpacked_root",
    "write_row",
]
