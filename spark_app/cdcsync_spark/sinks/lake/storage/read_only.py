"""A file system of Arrow's for reading alone."""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs


class ReadOnlyFiles(pafs.FileSystemHandler):
    """Opens files for those that extend it, and refuses what only a writer asks for."""

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("files are read here, and nothing else")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = _refuse
    delete_root_dir_contents = get_file_info_selector = move = _refuse
    open_append_stream = open_input_stream = open_output_stream = _refuse
