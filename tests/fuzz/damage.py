"""How a number damages a file: bytes flipped, or words of a text replaced by extreme ones."""

from random import Random

NUMBERS = ("0", "-1", "1.5", "0x7f", "1e300", "1e308", "-1e308", "1e-300", "nan", "inf", "-inf")
EXTREMES = (
    *NUMBERS,
    *(str(1 << 31), str(1 << 62), "9" * 30, "9" * 5000),
    *("null", "true", '""', "[]", "{}", "[[[[]]]]", "é", "\\ud800", '"\\u0000"', "../../x", "/dev/zero", "~"),
)


def flipped(content: bytes, random: Random) -> bytes:
    """A few bytes changed, removed, inserted or repeated; more often in the first ones, where headers are."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at = random.randrange(min(len(damaged), 256) if random.random() < 0.5 else len(damaged)) if damaged else 0
        match random.randrange(6):
            case 0 | 1 if damaged:
                damaged[at] ^= 1 << random.randrange(8)
            case 2:
                damaged[at : at + 4] = random.choice((b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff", b"\1\0\0\0"))
            case 3:
                del damaged[at : at + random.choice((1, 2, 100, len(damaged)))]
            case 4:
                damaged[at:at] = random.randbytes(random.choice((1, 4, 64)))
            case _:
                damaged[at:at] = damaged[at : at + random.choice((1, 16, 512))]
    return bytes(damaged)


def respelled(text: str, random: Random) -> bytes:
    """Text with words replaced by extreme values, or lines removed or doubled; or bytes of it flipped."""
    if random.random() < 0.2:
        return flipped(text.encode(), random)
    for _ in range(random.choice((1, 1, 2, 5))):
        match random.randrange(5):
            case 0 | 1 | 2:
                words = [at for at, letter in enumerate(text) if letter in " :,[{" and at + 1 < len(text)]
                at = random.choice(words) + 1 if words else 0
                end = next((place for place in range(at, len(text)) if text[place] in ",]}\n"), len(text))
                text = f"{text[:at]} {random.choice(EXTREMES)}{text[end:]}"
            case 3:
                lines = text.splitlines(keepends=True)
                text = "".join(random.choices(lines, k=len(lines))) if lines else text
            case _:
                text += random.choice(
                    ("[" * 3000, "{a: " * 2000, "\t", "&a [*a]\n", "!!python/object:os.system x\n", "\0")
                )
    return text.encode(errors="surrogatepass")
