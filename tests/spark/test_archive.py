"""twinbus in one file, for executors on machines where nothing is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from twinbus.errors import OptionsError, TwinbusError
from twinbus.spark import archive
from twinbus.spark.archive import FOLDER, pack, settings_for

BASE = sys._base_executable  # type: ignore[attr-defined]


@pytest.mark.long
def test_a_python_without_anything_finds_all_that_a_task_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow and numpy, which are large; `make test-cluster` runs tasks with all of it."""
    assert {"pyarrow", "numpy"} <= set(archive._ROOTS)
    monkeypatch.setattr(archive, "_ROOTS", [each for each in archive._ROOTS if each not in ("pyarrow", "numpy")])
    packed = pack(tmp_path / "twinbus.tar.gz")
    assert {each.split()[0] for each in packed.packages} >= {"twinbus", "azure-servicebus", "azure-identity", "msgspec"}
    assert not {each.split()[0] for each in packed.packages} & {"pyspark", "py4j", "pytest"}
    with tarfile.open(tmp_path / "twinbus.tar.gz") as tar:
        names = tar.getnames()
        assert "pyspark_twinbus.py" in names
        assert not [name for name in names if "direct_url" in name or "__pycache__" in name or name.startswith("/")]
        tar.extractall(tmp_path / FOLDER, filter="data")
    modules = "azure.identity, twinbus.spark.drain.shard as shard, twinbus.spark.source.writer"
    code = f"import {modules}; print(shard.__file__)"
    command = [BASE, "-S", "-c", f"import sys; sys.path.insert(0, {FOLDER!r}); {code}"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert FOLDER in found.stdout, found.stderr


def test_a_name_that_spark_does_not_unpack_and_a_place_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"called \*\.tar\.gz or \*\.tgz, not twinbus\.zip"):
        pack(tmp_path / "twinbus.zip")
    with pytest.raises(TwinbusError, match="cannot be written: No such file"):
        pack(tmp_path / "nowhere" / "twinbus.tar.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_session_knows_where_executors_find_it(tmp_path: Path) -> None:
    file = tmp_path / "twinbus.tar.gz"
    with pytest.raises(OptionsError, match="make one with twinbus pipeline pack"):
        settings_for(file)
    file.touch()
    assert settings_for(file) == {"spark.archives": f"{file}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}
