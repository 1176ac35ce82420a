"""Notes: to write one down, to list them, to delete one."""

from __future__ import annotations

import json

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import whole_number
from llamita.data.tool_tasks.wording import Split, Wordings, phrase
from llamita.data.tool_tasks.words import note

_ADD = Wordings(
    train=(
        "[please |]note: {note}",
        "[can you |]remind me to {deed}[.|?]",
        "[please |]write down: {note}",
        "make a note to {deed}[.|]",
        "add a note: {note}",
        "take a note, please: {note}",
        'note "{note}"[.| for me.]',
        'write down "{note}"[.| please.]',
        'add "{note}" to my notes.',
        "i must not forget to {deed}.",
        "remember to {deed}",
        "note that i have to {deed}.",
        "new note: {note}",
        "[hey, |]put this on my list: {note}",
        'keep the note "{note}".',
        "don't let me forget to {deed}[.|, please.]",
        "could you note that i want to {deed}?",
        "jot down: {note}",
        "store this: {note}",
        "reminder: {note}",
        "my reminder: {note}",
        "leave a note: {note}",
        "one more note: {note}",
        "about that, a note: {note}",
        "help me remember: {note}",
        'store the note "{note}".',
        "let me note: {note}",
    ),
    test=(
        "jot this down: {note}",
        "i should think of this: {note}",
        "one more for my notes: {note}",
        'store the words "{note}"[.|, thanks.]',
        "leave me a reminder to {deed}.",
        'let there be one that says "{note}".',
        "help me not to forget: {note}",
        "[now |]a note about this: {note}",
        "we ought to {deed}, so note it.",
    ),
)
_LIST = Wordings(
    train=(
        "[what are|show me] my notes[?|.]",
        "list [all |]my notes[.|, please.]",
        "what did i note[?| so far?]",
        "[please |]read me my notes[.|]",
        "which notes do i have?",
        "do i have any notes?",
        "notes, please.",
        "what is on my list?",
        "may i see my list?",
        "go through my list.",
        "are there any notes?",
        "tell me the notes.",
        "what have i noted?",
    ),
    test=(
        "[could i|may i] see the notes[?| now?]",
        "what have you noted for me?",
        "go through my notes[.| with me.]",
        "are there notes of mine?",
        "what do the notes say?",
    ),
)
_DELETE = Wordings(
    train=(
        "[please |]delete note {n}[.|]",
        "remove note {n}[.| from my list.]",
        "[can you |]delete note number {n}[?|, please.]",
        "note {n} is done.",
        "strike note {n}.",
        "i no longer need note {n}.",
        "forget note {n}[.|, please.]",
        "take note {n} off my list.",
        "note {n} can go.",
        "erase note {n} from my list.",
        "drop note {n}, please.",
        "get note {n} off my list.",
        "note {n} should be removed.",
        "i want note {n} gone.",
    ),
    test=(
        "get rid of note {n}[.|, thanks.]",
        "[now |]erase note {n}[.|]",
        "note {n} is of no more use, delete it.",
        "drop note number {n}[.| now.]",
        "i want note {n} removed.",
    ),
)


def wordings(split: Split) -> list[str]:
    """Every way to ask, with `SLOT` for notes and numbers."""
    return [said for forms in (_ADD, _LIST, _DELETE) for said in forms.all(split)]


def add_note(split: Split, dice: Dice) -> Task:
    """A task for writing a note down."""
    pattern = dice.pick(_ADD.of(split))
    while True:
        text = note(split, dice)
        # "remind me to" wants a deed, not a fact
        if "{deed}" not in pattern or " is " not in text:
            break
    request = phrase(pattern, split, dice, note=text, deed=text)
    return Task("note", request, f"Noted: {text}", "add_note", {"text": text})


def list_notes(split: Split, dice: Dice) -> Task:
    """A task for listing notes."""
    return Task("note list", _LIST.pick(split, dice), _listed, "list_notes", {})


def delete_note(split: Split, dice: Dice) -> Task:
    """A task for deleting a note, which may not be there."""
    number = whole_number(split, dice, most_digits=1 if dice.chance(0.5) else 2)
    request = _DELETE.pick(split, dice, n=number)
    return Task("note deletion", request, _deleted, "delete_note", {"number": int(number)})


def _listed(result: str) -> str:
    notes = json.loads(result)
    return "\n".join(f"{entry['number']}. {entry['text']}" for entry in notes) or "No notes."


def _deleted(result: str) -> str:
    found = json.loads(result)
    return f"Deleted: {found['deleted']}" if "deleted" in found else f"Sorry: {found['error']}."
