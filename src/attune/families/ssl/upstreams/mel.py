"""Log power on the mel scale, normalized by utterance. 10 ms, one layer of 80."""

from pathlib import Path

from attune.families.ssl.upstream import Upstream, UpstreamType


def build(assets: Path) -> Upstream:
    """Nothing to train, nothing to fetch."""
    from attune.audio.spectra import centered_count, mel
    from attune.families.ssl.filterbanks import FilterbankUpstream

    return FilterbankUpstream(mel, centered_count, 80)


UPSTREAM = UpstreamType(build)
