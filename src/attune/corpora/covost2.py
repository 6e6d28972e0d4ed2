"""CoVoST 2: Common Voice recordings with their transcripts, and the label `translation`.

Expects covost_v2.SOURCE_TARGET.{train,dev,test}.tsv, as CoVoST's own script writes them, beside Common Voice's clips/.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attune.corpora._layout import CorpusPaths, Layout, RowOrSkipped, Skipped, first_existing
from attune.corpora._rows import Row
from attune.corpora._tables import read_records

SPLITS = ("train", "dev", "test")
REMOVED = "REMOVE"  # how CoVoST marks what its translators rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which languages."""

    source: Annotated[str, Field(description="Language of the speech.")] = "en"
    target: Annotated[str, Field(description="The language of the translations.")] = "de"


def read(corpus: CorpusPaths, options: Options) -> dict[str, Iterator[RowOrSkipped]]:
    """The three splits of a pair of languages."""
    clips = first_existing(corpus, "clips", f"{options.source}/clips")
    tables = {
        split: first_existing(corpus, name, f"{options.source}/{name}")
        for split in SPLITS
        for name in [f"covost_v2.{options.source}_{options.target}.{split}.tsv"]
    }
    return {split: _rows(table, clips, options) for split, table in tables.items()}


def _rows(table: Path, clips: Path, options: Options) -> Iterator[RowOrSkipped]:
    for record in read_records(table, ("path", "sentence", "translation", "client_id")):
        if isinstance(record, Skipped):
            yield record
        elif Path(record["path"]).name != record["path"]:
            yield Skipped(record["path"], "path outside clips/")
        elif REMOVED in record["sentence"] or REMOVED in record["translation"]:
            yield Skipped(record["path"], "rejected by the translators")
        else:
            yield Row(
                Path(record["path"]).stem,
                str(clips / record["path"]),
                text=record["sentence"],
                speaker=record["client_id"] or None,
                language=options.source,
                labels={"translation": record["translation"], "target": options.target},
            )


CORPUS = Layout(read, Options, speakers_apart=True)
