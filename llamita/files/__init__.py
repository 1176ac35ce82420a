"""Reading strangers' files within bounds (`reading`), writing that is whole or not there
(`writing`)."""

from __future__ import annotations

from llamita.files.reading import (
    LARGEST_JSON,
    check_plain_file,
    parse_json,
    read_bounded,
    read_json,
    sha256_file,
    sha256_text,
)
from llamita.files.writing import (
    atomic_write_bytes,
    atomic_write_text,
    check_own,
    fsync_path,
    give_usual_mode,
    remove_leftovers,
    replace_directory,
    replace_files,
    temporary_prefix,
    write_json,
    write_own,
)

__all__ = [
    "LARGEST_JSON",
    "atomic_write_bytes",
    "atomic_write_text",
    "check_own",
    "check_plain_file",
    "fsync_path",
    "give_usual_mode",
    "parse_json",
    "read_bounded",
    "read_json",
    "remove_leftovers",
    "replace_directory",
    "replace_files",
    "sha256_file",
    "sha256_text",
    "temporary_prefix",
    "write_json",
    "write_own",
]
