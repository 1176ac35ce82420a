"""Notes: to write one down, to list them, to delete one."""

from __future__ import annotations

import json

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.note_wordings import ADD
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import whole_number
from llamita.data.tool_tasks.wording import Split, Wordings, phrase
from llamita.data.tool_tasks.words import deed, note

_LIST = Wordings(
    train=(
        "[what are|show me|where are] my notes[?|.]",
        "list [all |]my notes.",
        "what did i note[?| so far?]",
        "[please |]read me my notes.",
        "which notes do i have?",
        "do i have any notes?",
        "notes.",
        "my notes.",
        "what is on my list?",
        "may i see my list?",
        "go through my list.",
        "are there any notes?",
        "tell me the notes.",
        "what have i noted?",
        "give me [all |]my notes.",
        "give me the list.",
        "let me see what i noted.",
        "let me see my list.",
        "show the list.",
        "show me everything on my list.",
        "show me what i wrote down.",
        "i want to see my notes.",
        "i want to hear my notes.",
        "i would like to look at my notes.",
        "i forgot what i noted.",
        "i forgot what is on my list. tell me.",
        "what was i to remember?",
        "what should i not forget?",
        "what did you write down?",
        "what did i ask you to note?",
        "what do i have on my list?",
        "what is there to do?",
        "what is still to be done?",
        "what notes are there?",
        "what notes have i made?",
        "which things did i write down?",
        "which things are on the list?",
        "how does my list look?",
        "how many notes do i have, and which?",
        "is there anything on my list?",
        "is my list empty?",
        "is there something i noted?",
        "have i noted anything?",
        "have i made any notes?",
        "did i leave any notes?",
        "can you read my list?",
        "can you list the notes?",
        "can you tell me what i noted?",
        "could you show me the list?",
        "could you read out every note?",
        "read out my list.",
        "read every note to me.",
        "say all my notes.",
        "print my notes.",
        "open my notes.",
        "bring up my notes.",
        "display all notes.",
        "all notes.",
        "the whole list.",
        "my list.",
        "one look at my notes.",
        "name every note i have.",
        "recall my notes.",
        "remind me of my notes.",
        "remind me what i wrote down.",
        "tell me all that i noted.",
        "tell me what is on my list.",
        "time to look at my notes.",
        "it is time for my list.",
        "i am done. what else is on my list?",
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
        "[please |]delete note {n}.",
        "delete {n} from my notes.",
        "remove note {n}[.| from my list.]",
        "[can you |could you |]delete note number {n}[?|.]",
        "note {n} is done.",
        "note {n} is done, delete it.",
        "strike note {n}.",
        "strike number {n} from the list.",
        "i no longer need note {n}.",
        "i do not need note {n} any more.",
        "forget note {n}.",
        "forget about note {n}.",
        "take note {n} off my list.",
        "take number {n} off the list.",
        "note {n} can go.",
        "note number {n} can go.",
        "erase note {n} from my list.",
        "erase number {n} on my list.",
        "drop note {n}.",
        "get note {n} off my list.",
        "note {n} should be removed.",
        "note {n} should go away.",
        "note {n} must go.",
        "note {n} has to go.",
        "note {n} is old, remove it.",
        "note {n} is wrong. take it away.",
        "note {n} is finished.",
        "note {n} is not needed any longer.",
        "note {n}: delete.",
        "note {n} out.",
        "i want note {n} gone.",
        "i want to delete note {n}.",
        "i want to be rid of number {n} on my list.",
        "i did what note {n} says, so delete it.",
        "i finished note {n}.",
        "i am done with note {n}.",
        "i am through with number {n} on my list.",
        "i have no use for note {n}.",
        "i would like note {n} to disappear.",
        "i changed my mind about note {n}, remove it.",
        "we can cross out note {n}.",
        "we are finished with note {n}, so it can go.",
        "cross note {n} off.",
        "cross out number {n}.",
        "cross off note {n}.",
        "tick off note {n}.",
        "tick note {n} off my list.",
        "clear note {n}.",
        "wipe out note {n}.",
        "wipe note {n} from the list.",
        "throw note {n} away.",
        "throw out note {n}.",
        "cancel note {n}.",
        "discard note {n}.",
        "scratch note {n}.",
        "tear up note {n}.",
        "kill note {n}.",
        "cut note {n} from my list.",
        "remove the note with the number {n}.",
        "delete the note that has number {n}.",
        "delete number {n}.",
        "remove number {n} of my notes.",
        "number {n} on my list is done.",
        "number {n} can be deleted.",
        "of my notes, delete number {n}.",
        "from my notes, remove {n}.",
        "from the list, take away number {n}.",
        "would you delete note {n}?",
        "would you remove note {n} for me?",
        "may note {n} be deleted?",
        "can note {n} go?",
        "can we drop number {n} from the list?",
        "could you cross out note {n}?",
        "please let note {n} be gone.",
        "make note {n} go away.",
        "let us delete note {n}.",
        "it is time to delete note {n}.",
        "nobody needs note {n}, so remove it.",
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
    return [said for forms in (ADD, _LIST, _DELETE) for said in forms.all(split)]


def add_note(split: Split, dice: Dice) -> Task:
    """A task for writing a note down."""
    pattern = dice.pick(ADD.of(split))
    # "remind me to" wants a deed, not a fact
    text = deed(split, dice) if "{deed}" in pattern else note(split, dice)
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
