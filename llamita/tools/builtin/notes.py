"""Notes, in memory or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from llamita.errors import ToolError
from llamita.files.reading import read_json
from llamita.files.writing import write_json

_LONGEST = 10_000
_MOST = 1000


class Notes:
    """Numbered notes; a number is not used again. file: where they are kept, made when needed.

    A file is read before each use, for others may write into it.
    Raises ToolError where the file holds something else.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._notes: dict[int, str] = {}
        self._last = 0
        self._refresh()

    def add_note(self, text: Annotated[str, {"minLength": 1, "maxLength": _LONGEST}]) -> Any:
        """Write a note down.

        Args:
            text: What the note says.
        """
        self._refresh()
        if len(self._notes) >= _MOST:
            raise ValueError(f"there are {_MOST} notes already; delete one first")
        number = self._last + 1
        self._keep({**self._notes, number: text}, number)
        return {"number": number}

    def list_notes(self) -> Any:
        """List all notes with their numbers."""
        self._refresh()
        return [{"number": number, "text": text} for number, text in self._notes.items()]

    def delete_note(self, number: Annotated[int, {"minimum": 1}]) -> Any:
        """Delete a note.

        Args:
            number: The note's number.
        """
        self._refresh()
        if number not in self._notes:
            raise ValueError(f"there is no note {number}")
        rest = dict(self._notes)
        text = rest.pop(number)
        self._keep(rest, self._last)
        return {"deleted": text}

    def _keep(self, notes: dict[int, str], last: int) -> None:
        if self._file is not None:  # first: what cannot be written is not kept either
            write_json(self._file, {"last": last, "notes": {str(n): t for n, t in notes.items()}})
        self._notes, self._last = notes, last

    def _refresh(self) -> None:
        if self._file is None or not self._file.exists():
            return
        kept = read_json(self._file, ToolError)
        try:
            notes = {int(number): text for number, text in kept["notes"].items()}
            last = max([int(kept["last"]), *notes])
            if not all(isinstance(text, str) for text in notes.values()):
                raise TypeError("a note is no text")
            if min(notes, default=1) < 1 or last < 0 or len(notes) < len(kept["notes"]):
                raise ValueError("notes are numbered from 1, each otherwise")
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            raise ToolError(
                f"{self._file} holds no notes of llamita.", hint="Name another file for the notes."
            ) from error
        self._notes, self._last = notes, last
