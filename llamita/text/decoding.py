"""A file's characters as a stream: decompressed and decoded in pieces, so any size fits in memory.

Decoding is strict: bytes that are no text raise an error with their place, because a silent
replacement would train the model on damaged words.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from llamita.errors import DataError
from llamita.text.sources import TextFile

CHUNK_BYTES = 1 << 18
# A zstd block of 4 bytes can stand for 128 KiB: small input pieces keep what one may become small.
ZSTD_INPUT_BYTES = 1 << 12
# Files written with `zstd --long=31` ask for a window of 2 GiB; others allocate what they need.
ZSTD_MAX_WINDOW_BYTES = 1 << 31
# More NUL bytes than one in a hundred are no text: UTF-16 without a mark, or a binary file.
MAX_NUL_SHARE = 0.01


def check_encoding(encoding: str) -> None:
    """Raise DataError unless `encoding` is a text encoding that Python knows."""
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except LookupError:
        raise DataError(
            f"there is no text encoding {encoding!r}.",
            hint="Examples of --encoding: utf-8, utf-16, latin-1, cp1251, gb18030.",
        ) from None


def read_text(
    file: TextFile, encoding: str = "utf-8", on_read: Callable[[int], None] | None = None
) -> Iterator[str]:
    """Yield the text of `file` in pieces, without its byte order mark.

    `on_read` is called with the number of bytes of the file on disk read so far.

    Raises:
        DataError: the file cannot be read, is damaged or truncated, or is no text in `encoding`.
    """
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    offset = 0  # of the next byte to decode, after decompression
    at_start = True
    for chunk in _chunks_with_end(file, on_read):
        if offset == 0:
            _refuse_binary(file, encoding, chunk)
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise _not_text(file, encoding, offset - pending + error.start, error) from None
        except UnicodeError as error:
            raise DataError(
                f"{file} is not {encoding} text: {error}.",
                hint="Give the encoding it has with --encoding.",
            ) from None
        offset += len(chunk)
        if at_start and text:
            text = text.removeprefix("\ufeff")
            at_start = False
        if text:
            yield text


def _chunks_with_end(file: TextFile, on_read: Callable[[int], None] | None) -> Iterator[bytes]:
    """The decompressed bytes of `file`, then one empty piece."""
    try:
        with file.path.open("rb") as handle:
            for chunk in _decompressed(handle, file.compression):
                if on_read is not None:
                    on_read(handle.tell())
                if chunk:
                    yield chunk
    except EOFError:
        raise DataError(
            f"{file} ends in the middle of its compressed data.",
            hint="It was not copied or downloaded whole: get it again.",
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file} is not a whole gzip file: {error}.") from None
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}.") from error
    yield b""


def _decompressed(handle: BinaryIO, compression: str) -> Iterator[bytes]:
    if compression == ".zst":
        yield from _zstd_chunks(handle)
        return
    stream = gzip.GzipFile(fileobj=handle) if compression == ".gz" else handle
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def _zstd_chunks(handle: BinaryIO) -> Iterator[bytes]:
    """All frames of a zstd file; EOFError when the last one is not whole.

    The library's own stream reader takes a truncated file for a short one.
    """
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    frame = None
    try:
        while block := handle.read(ZSTD_INPUT_BYTES):
            while block:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(block)
                block = b""
                if frame.eof:
                    block, frame = frame.unused_data, None
    except zstandard.ZstdError as error:
        raise DataError(f"{handle.name} is not a whole zstd file: {error}.") from None
    if frame is not None:
        raise EOFError


def _refuse_binary(file: TextFile, encoding: str, chunk: bytes) -> None:
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        return
    if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            f"{file} begins with the mark of UTF-16, not of {encoding} text.",
            hint="Read it with --encoding utf-16.",
        )
    if chunk.count(0) > MAX_NUL_SHARE * len(chunk):
        raise DataError(
            f"{file} looks like a binary file: {chunk.count(0):,} of its first {len(chunk):,} "
            "bytes are zero.",
            hint="Leave it out; if it is UTF-16 text, read it with --encoding utf-16-le or -be.",
        )


def _not_text(file: TextFile, encoding: str, position: int, error: UnicodeDecodeError) -> DataError:
    unpacked = " of its decompressed content" if file.compression else ""
    shown = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
    return DataError(
        f"{file} is not {encoding} text: byte {position:,}{unpacked} ({shown}): {error.reason}.",
        hint="If it is text, give the encoding it has, e.g. --encoding latin-1 or cp1252.",
    )
