"""Tables of Azure ML: their data has to come with their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import InputError
from launch.jobfile.mltable import refuse_paths_elsewhere

TABLE = """\
type: mltable
paths:
  - pattern: ./*.csv
  - {key}: {path}
transformations:
  - read_delimited: {{delimiter: ","}}
"""


def table(folder: Path, path: str, key: str = "file") -> Path:
    (folder / "MLTable").write_text(TABLE.format(key=key, path=path))
    return folder


@pytest.mark.parametrize("path", ["train.csv", "./a/b.csv", "a/../b.csv", "'day=*/part-[0-9].parquet'"])
def test_paths_below_the_table_come_with_it(tmp_path: Path, path: str) -> None:
    refuse_paths_elsewhere(table(tmp_path, path))


@pytest.mark.parametrize("key", ["file", "folder", "pattern"])
@pytest.mark.parametrize(
    "path",
    [
        "azureml://datastores/workspaceblobstore/paths/x/",
        "https://acme.blob.core.windows.net/data/x.csv",
        "wasbs://data@acme.blob.core.windows.net/x.csv",
        "adl://acme.azuredatalakestore.net/x",
        "/mnt/data/x.csv",
        "../x.csv",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_with_its_line(tmp_path: Path, key: str, path: str) -> None:
    with pytest.raises(InputError) as caught:
        refuse_paths_elsewhere(table(tmp_path, path, key))
    assert f"{tmp_path}/MLTable, line 4: paths[1].{key} = '{path}': is not below the table's fol" in str(
        caught.value
    )
    assert "make that an input of its own" in str(caught.value)


def test_a_folder_without_the_file_is_a_folder(tmp_path: Path) -> None:
    refuse_paths_elsewhere(tmp_path)
