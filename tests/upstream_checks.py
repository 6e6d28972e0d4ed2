"""Upstreams on recordings of very unlike lengths: all layers of each, alone and in company."""

import numpy as np
import torch

from attune import catalog
from attune.batches.load import Reader
from attune.corpora import open_manifest
from attune.families.ssl.upstream import UPSTREAMS
from attune.testing import make_corpus


def recordings(folder):
    """Four recordings: 0.13 s, 1 s, a few seconds, and several times as long."""
    reader = Reader(list(open_manifest(make_corpus(folder, utterances=5), folder / "index")))
    batch, _ = reader.read(np.arange(5))
    rows = [row[:length] for row, length in zip(batch.audio, batch.lengths.tolist(), strict=True)]
    return [rows[0][:2100], rows[1][:16_000], rows[2], torch.cat([rows[3], rows[4], rows[0]])]


def open_upstream(name, checkpoint, assets):
    """An upstream with the weights of a checkpoint."""
    plug_in = catalog.find(UPSTREAMS, name)
    weights = plug_in.read(checkpoint, assets)
    upstream = plug_in.build(assets)
    upstream.load_state_dict(weights)
    return upstream.eval()


def layers_of(upstream, rows):
    """All layers of each row, cut to its own frames, computed together."""
    lengths = torch.tensor([len(row) for row in rows])
    padded = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    with torch.inference_mode():
        layers, counts = upstream(padded, lengths)
        layers = list(layers)
    assert len(layers) == len(upstream.widths)
    assert counts.tolist() == [upstream.frames(len(row)) for row in rows]
    return [[layer[index, :count] for layer in layers] for index, count in enumerate(counts.tolist())]


def farthest(one, other):
    """The largest difference of two lists of layers."""
    return max(float((a - b[: len(a)]).abs().max()) for a, b in zip(one, other, strict=True))
