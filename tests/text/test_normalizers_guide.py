import re
from pathlib import Path

from attune import catalog

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "normalizers.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def test_the_guide_shows_what_normalizers_do():
    rows = ROW.findall(GUIDE.read_text(encoding="utf-8"))
    wrong = [row for row in rows if catalog.find(catalog.NORMALIZERS, row[0])(row[1]).strip() != row[2]]
    assert wrong == []


def test_the_guide_shows_every_normalizer():
    shown = {name for name, _, _ in ROW.findall(GUIDE.read_text(encoding="utf-8"))}
    assert shown | {"whisper_english"} == set(catalog.names(catalog.NORMALIZERS))


def test_the_normalizer_that_the_guide_writes_works_from_outside(tmp_path, monkeypatch):
    code = re.search(r"```python\n# my_project(.+?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "haw_normalizers").mkdir()
    (tmp_path / "haw_normalizers" / "hawaiian.py").write_text(f"#{code[1]}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    hawaiian = catalog.find(catalog.NORMALIZERS, "haw_normalizers.hawaiian")
    assert hawaiian("'Ōlelo Hawai’i!") == "ʻōlelo hawaiʻi"
