"""Seeds as a function: one for every purpose, derived from the recipe's seed.

No random generator has state that a checkpoint would have to save.
"""

import hashlib


def derive(seed: int, *parts: str | int) -> int:
    """The seed for one purpose, e.g. `derive(17, "dropout", step, micro)`; 63 bits, the same on every machine."""
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
