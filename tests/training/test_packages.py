import logging
import sys
import warnings

import pytest

from attune.errors import ConfigError
from attune.training.packages import import_optional

NOISY = 'import logging, warnings\nwarnings.warn("no kernel")\nlogging.getLogger("noisy").warning("no 4-bit kernel")\n'


def test_the_warnings_of_a_package_do_not_reach_the_user(tmp_path, monkeypatch, caplog):
    (tmp_path / "noisy_package.py").write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        import_optional("noisy_package", "missing")
        del sys.modules["noisy_package"]
    logging.getLogger("own").warning("still shown")
    assert not seen and [record.message for record in caplog.records] == ["still shown"]


def test_a_missing_package_is_a_message():
    with pytest.raises(ConfigError, match="Run: pip install"):
        import_optional("no_such_package", "Run: pip install no_such_package")
