"""SUPERB's baseline: log-mel energies with deltas, normalized by utterance. 10 ms, one layer of 240."""

from pathlib import Path

from attune.families.ssl.upstream import Upstream, UpstreamType


def build(assets: Path) -> Upstream:
    """80 log-mel bins with deltas of order 1 and 2; nothing to train, nothing to fetch."""
    from attune.audio.features import fbank, frame_count
    from attune.families.ssl.filterbanks import FilterbankUpstream

    return FilterbankUpstream(fbank, frame_count, 240)


UPSTREAM = UpstreamType(build)
