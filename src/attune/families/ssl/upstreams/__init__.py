"""The encoders of the `ssl` family by name."""

from collections.abc import Callable

from attune.families.ssl.model import Upstream
from attune.families.ssl.upstreams.fbank import Fbank

UPSTREAMS: dict[str, Callable[[], Upstream]] = {"fbank": Fbank}
