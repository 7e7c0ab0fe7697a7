"""Data files: columns and first rows, and no word of what a file that is none holds."""

import codecs
import gzip
import json
import os
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.planning.keys.config_data import FileSection
from orchestrator.planning.prechecks.data_file import NoDataFileError, read_data_file

ROWS = [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
SECRET = "AWS_SECRET=hunter2"


def write(path: Path, file_format: str) -> Path:
    table = pa.Table.from_pylist(ROWS)
    match file_format:
        case "parquet":
            pq.write_table(table, path)
        case "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as to:
                to.write_table(table)
        case "csv":
            path.write_text("text,label\na,0\nb,1\n")
        case "json":
            path.write_text("\n".join(map(json.dumps, ROWS)))
        case "disk":
            path.mkdir()
            write(path / "data.arrow", "arrow")
            (path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    return path


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json", "disk"])
def test_data_file_of_every_format_has_columns_and_rows(tmp_path, file_format):
    data = read_data_file(write(tmp_path / "data", file_format), file_format)
    assert data.columns == ("text", "label")
    assert [dict(row) for row in data.rows] == ROWS


def test_data_file_with_one_array_has_its_objects(tmp_path):
    (tmp_path / "data.json").write_text(json.dumps(ROWS, indent=1))
    assert [dict(row) for row in read_data_file(tmp_path / "data.json", "json").rows] == ROWS


@pytest.mark.parametrize("file_format", ["csv", "json"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_with_a_byte_order_mark_is_read_packed_or_not(packed, file_format, tmp_path):
    path = write(tmp_path / "data", file_format)
    content = codecs.BOM_UTF8 + path.read_bytes()
    path.write_bytes(gzip.compress(content) if packed else content)
    assert [dict(row) for row in read_data_file(path, file_format).rows] == ROWS
    assert FileSection(path=f"a/b.{file_format}.GZ").known_format == file_format


@pytest.mark.parametrize("between", [";", "\t"])
def test_cells_without_commas_between_them_are_named(between, tmp_path):
    (tmp_path / "data").write_text(f"note{between}label\na, b{between}1\n")
    said = read_data_file(tmp_path / "data", "csv").listed_columns()
    assert said == "one column, because its cells are not separated by commas"


def test_packed_file_that_ends_too_early_is_refused(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(b'{"text": "a"}')[:-9])
    with pytest.raises(NoDataFileError, match="is damaged"):
        read_data_file(path, "json")


def test_data_folder_with_splits_is_read_by_its_training_set(tmp_path):
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(NoDataFileError, match="none is called train"):
        read_data_file(tmp_path, "disk")
    write(tmp_path / "train", "disk")
    assert read_data_file(tmp_path, "disk").columns == ("text", "label")


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json", "disk"])
@pytest.mark.parametrize(
    "content", [SECRET, f"{SECRET}\nPATH=/bin\n", f"[{SECRET}", f'"{SECRET}"', "\0\xff", ""]
)
def test_file_of_another_kind_is_refused_without_its_content(tmp_path, file_format, content):
    path = tmp_path / "data"
    path.write_text(content)
    try:
        said = read_data_file(path, file_format).listed_columns()
    except NoDataFileError as error:
        said = "".join(traceback.format_exception(error))
    assert "hunter2" not in said


@pytest.mark.parametrize("path", ["/proc/self/environ", "/dev/zero", "/sys/kernel/notes"])
def test_file_of_the_system_is_refused_unread(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    for named in (Path(path), tmp_path / "link"):
        with pytest.raises(NoDataFileError, match="it belongs to the system"):
            read_data_file(named, "csv")


def test_pipe_and_folder_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NoDataFileError, match="a pipe or a device"):
        read_data_file(tmp_path / "pipe", "csv")
    with pytest.raises(NoDataFileError, match="is a folder; name one file in it"):
        read_data_file(tmp_path, "csv")


def test_pipe_inside_a_folder_of_save_to_disk_is_refused_at_once(tmp_path):
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "x.arrow"}]}')
    os.mkfifo(tmp_path / "x.arrow")
    with pytest.raises(NoDataFileError, match="is no file but a pipe"):
        read_data_file(tmp_path, "disk")


def test_table_of_texts_that_is_a_link_into_the_system_is_refused_unread(tmp_path):
    (tmp_path / "metadata.csv").symlink_to("/proc/self/environ")
    with pytest.raises(NoDataFileError, match="it belongs to the system"):
        read_data_file(tmp_path, "imagefolder")


@pytest.mark.parametrize("inside", ["", "train"])
def test_folder_of_images_has_the_classes_that_its_folders_name(inside, tmp_path):
    folder = tmp_path / inside
    (folder / "owl").mkdir(parents=True)
    with pytest.raises(NoDataFileError, match="no folder for each class"):
        read_data_file(tmp_path, "imagefolder")
    (folder / "cat").mkdir()
    data = read_data_file(tmp_path, "imagefolder")
    assert data.values({"labels": "label"}) == {"labels": ["cat", "owl"]}
