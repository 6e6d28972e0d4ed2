"""How far an upload is, counted over the threads that send its parts."""

import threading

from attune.secrets import shown
from attune.sources._cache import TransferProgress, Watch


class UploadedBytes:
    """Adds up what was sent to an address, and reports it."""

    def __init__(self, address: str, total: int, watch: Watch, verb: str = "uploading") -> None:
        self._source, self._total, self._watch, self._verb = shown(address), total, watch, verb
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self, sent: int) -> None:
        """So many bytes more; a part that is sent again does not count for more than the whole."""
        with self._lock:
            self._done = min(self._done + sent, self._total)
            self._watch(TransferProgress(self._source, self._done, self._total, verb=self._verb))
