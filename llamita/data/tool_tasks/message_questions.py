"""Questions whose answer stands in the message: what is told, and what is asked about it.

Slots: x and y are people, p and q places, a, b and c numbers, k and l colours, t and u things,
d and e days, h a time of day.
"""

from __future__ import annotations

from llamita.data.tool_tasks.wording import Split

Asked = tuple[tuple[str, str], ...]  # questions with their answers

_TOLD: tuple[tuple[str, Asked], ...] = (
    (
        "my [dog|cat|horse|parrot|son|daughter|boat] is called {x}.",
        (("what is its name?", "{x}"), ("how is it called?", "{x}"), ("say that name.", "{x}")),
    ),
    ("my name is {x}.", (("what is my name?", "{x}"), ("what am i called?", "{x}"))),
    ("i am {x}.", (("who am i?", "{x}"), ("say my name.", "{x}"), ("do you know my name?", "{x}"))),
    ("i am called {x}.", (("what am i called?", "{x}"), ("tell me my name.", "{x}"))),
    (
        "{x} is my friend and {y} is my boss.",
        (("who is my friend?", "{x}"), ("who is my boss?", "{y}")),
    ),
    (
        "my brother is {x}, my [sister|wife|uncle] is {y}.",
        (("who is my brother?", "{x}"), ("what is my brother called?", "{x}")),
    ),
    (
        "i have {a} cats and {b} dogs.",
        (
            *(("how many cats do i have?", "{a}"), ("how many dogs do i have?", "{b}")),
            *(("how many dogs?", "{b}"), ("and the cats, how many?", "{a}")),
        ),
    ),
    (
        "she has {a} birds and {b} mice.",
        (("how many birds?", "{a}"), ("how many mice does she have?", "{b}")),
    ),
    (
        "{x} has {a} coins, {y} has {b}.",
        (("how many has {x}?", "{a}"), ("how many coins does {y} have?", "{b}")),
    ),
    (
        "{x} lives in {p}.",
        (("where does {x} live?", "{p}"), ("who lives in {p}?", "{x}"), ("in which town?", "{p}")),
    ),
    (
        "{x} lives in {p}, but {y} lives in {q}.",
        (
            *(("where does {x} live?", "{p}"), ("where does {y} live?", "{q}")),
            *(("who lives in {q}?", "{y}"), ("who lives in {p}?", "{x}")),
        ),
    ),
    ("i was born in {p}.", (("where was i born?", "{p}"), ("which is my home town?", "{p}"))),
    (
        "i was born in {p} and now i work in {q}.",
        (("where do i work?", "{q}"), ("where was i born?", "{p}")),
    ),
    (
        "we drove from {p} to {q}.",
        (
            *(("where did we go?", "{q}"), ("where did we start?", "{p}")),
            *(("where did the trip end?", "{q}"), ("which town did we leave?", "{p}")),
        ),
    ),
    (
        "the flight to {p} stops in {q}.",
        (("where does it stop?", "{q}"), ("where does it go?", "{p}")),
    ),
    (
        "the [code|password|number|answer] is {a}.",
        (("say it.", "{a}"), ("what is it?", "{a}"), ("repeat it to me.", "{a}")),
    ),
    (
        "the train leaves from gate {a} at {h}.",
        (("which gate?", "{a}"), ("when does it leave?", "{h}"), ("at what time?", "{h}")),
    ),
    (
        "{x} met {y} in {p}.",
        (
            *(("whom did {x} meet?", "{y}"), ("who met {y}?", "{x}")),
            *(("where did they meet?", "{p}"), ("in which place?", "{p}")),
        ),
    ),
    (
        "i live at number {a}, {x} at number {b}.",
        (("what is my number?", "{a}"), ("where is {x}?", "number {b}")),
    ),
    (
        "i saw {x}, then {y}.",
        (("who was second?", "{y}"), ("who was first?", "{x}"), ("who came last?", "{y}")),
    ),
    (
        "first came {x}, after that {y}.",
        (("who was first?", "{x}"), ("who came later?", "{y}"), ("name the second.", "{y}")),
    ),
    (
        "{x} won, and {y} lost.",
        (("who won?", "{x}"), ("who lost?", "{y}"), ("name the winner.", "{x}")),
    ),
    (
        "{x} is taller than {y}.",
        (("who is taller?", "{x}"), ("who is the taller one?", "{x}")),
    ),
    (
        "{x} loves {y}.",
        (("whom does {x} love?", "{y}"), ("who is in love?", "{x}"), ("who loves {y}?", "{x}")),
    ),
    (
        "the {t} is {k}.",
        (("which colour is it?", "{k}"), ("what is {k}?", "the {t}"), ("tell its colour.", "{k}")),
    ),
    (
        "the {t} is {k} and the {u} is {l}.",
        (
            *(("which colour is the {t}?", "{k}"), ("which colour is the {u}?", "{l}")),
            *(("what is {k}?", "the {t}"), ("what is {l}?", "the {u}")),
        ),
    ),
    (
        "i wear a {k} {t}.",
        (("what do i wear?", "a {k} {t}"), ("which colour do i wear?", "{k}")),
    ),
    (
        "{x} bought a {t}, {y} sold a {u}.",
        (
            *(("what did {x} buy?", "a {t}"), ("what did {y} sell?", "a {u}")),
            *(("who bought something?", "{x}"), ("who sold something?", "{y}")),
        ),
    ),
    (
        "{x} gave the {t} to {y}.",
        (
            *(("who has it now?", "{y}"), ("who gave it away?", "{x}")),
            *(("what did {y} get?", "the {t}"), ("what was given?", "the {t}")),
        ),
    ),
    (
        "the {t} costs {a} and the {u} costs {b}.",
        (
            *(("how much is the {t}?", "{a}"), ("how much is the {u}?", "{b}")),
            *(("what does the {u} cost?", "{b}"), ("which one costs {a}?", "the {t}")),
        ),
    ),
    (
        "the {t} is in {p}.",
        (("where is it?", "{p}"), ("where is the {t}?", "{p}"), ("what is in {p}?", "the {t}")),
    ),
    (
        "the {t} is old, but the {u} is new.",
        (("which one is old?", "the {t}"), ("which one is new?", "the {u}")),
    ),
    (
        "i lost the {t} in {p}.",
        (("what did i lose?", "the {t}"), ("where did i lose it?", "{p}")),
    ),
    (
        "{x} comes on {d} and leaves on {e}.",
        (("when does {x} come?", "{d}"), ("when does {x} leave?", "{e}"), ("who comes?", "{x}")),
    ),
    (
        "the play is on {d} at {h}.",
        (("on which day?", "{d}"), ("at what time?", "{h}"), ("when is the play?", "{d}")),
    ),
    (
        "we eat at {h} with {x}.",
        (("when do we eat?", "{h}"), ("who eats with us?", "{x}")),
    ),
    (
        "the shop opens at {h}.",
        (("when does it open?", "{h}"), ("what opens at {h}?", "the shop")),
    ),
    (
        "bus {a} goes to {p}, bus {b} to {q}.",
        (
            *(("which bus goes to {p}?", "{a}"), ("which bus goes to {q}?", "{b}")),
            *(("where does bus {a} go?", "{p}"), ("where does bus {b} go?", "{q}")),
        ),
    ),
    (
        "{x} is {a} years old.",
        (("how old is {x}?", "{a}"), ("what age is that?", "{a}"), ("who is {a}?", "{x}")),
    ),
    (
        "{x} is {a} years old and {y} is {b}.",
        (("how old is {x}?", "{a}"), ("how old is {y}?", "{b}"), ("who is {b}?", "{y}")),
    ),
    (
        "page {a} is about {x}, page {b} about {y}.",
        (("which page is about {y}?", "{b}"), ("whom is page {a} about?", "{x}")),
    ),
    (
        "there were {a} men, {b} women and {c} children.",
        (
            *(("how many men were there?", "{a}"), ("how many children?", "{c}")),
            *(("how many women were there?", "{b}"), ("the children, how many?", "{c}")),
        ),
    ),
    (
        "{x} plays the king, {y} plays the fool.",
        (("who plays the fool?", "{y}"), ("who is the king?", "{x}")),
    ),
    ("{x} wrote this play.", (("who wrote it?", "{x}"), ("name the writer.", "{x}"))),
    ("the capital is {p}.", (("what is the capital?", "{p}"), ("name it.", "{p}"))),
    (
        "i like {k}, and {x} likes {l}.",
        (("which colour do i like?", "{k}"), ("which colour does {x} like?", "{l}")),
    ),
    (
        'the sign says "{t}".',
        (("what does it say?", "{t}"), ("read the sign.", "{t}")),
    ),
    (
        "i read it in a book by {x}.",
        (("who wrote the book?", "{x}"), ("by whom is the book?", "{x}")),
    ),
)
_ASKED_FIRST: Asked = (
    ("where is {x}, if {x} went to {p}?", "{p}"),
    ("who is it: i mean {x}?", "{x}"),
    ("how many apples are left, when {a} are left?", "{a}"),
    ("which one is red, when the {t} is red and the {u} is blue?", "the {t}"),
    ("tell me where i live. i live in {p}.", "{p}"),
    ("guess my name. it is {x}.", "{x}"),
    ("say who won: {x} won, {y} came second.", "{x}"),
    ("who is older if {x} is {a} and {y} is only a baby?", "{x}"),
    ("can you say which town i mean? it is {p}.", "{p}"),
    ("can you tell the colour of a {k} {t}?", "{k}"),
    ("of {x} and {y}, say the first.", "{x}"),
    ("of {x} and {y}, say the second.", "{y}"),
    ("of the towns {p} and {q}, which did i name last?", "{q}"),
    ("of {a} and {b}, say the one that i said first.", "{a}"),
    ("what did i buy when i bought a {t}?", "a {t}"),
    ("what day is it, if it is {d}?", "{d}"),
    ("when do we leave if we leave at {h}?", "{h}"),
    ("if {x} is in {p}, where is {x}?", "{p}"),
    ("if my {t} is {k}, which colour is it?", "{k}"),
    ("if the boy is called {x} and the girl {y}, what is the girl called?", "{y}"),
    ("if the boy is called {x} and the girl {y}, what is the boy called?", "{x}"),
    ("if i say {x}, what did i say?", "{x}"),
)
# A message with a question, and the answer.
PATTERNS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        *((f"{told} {question}", answer) for told, asked in _TOLD for question, answer in asked),
        *_ASKED_FIRST,
    ),
    "test": (
        ("{x} came from {p} today. where did {x} come from?", "{p}"),
        ("i met {x} and then {y}. whom did i meet first?", "{x}"),
        ("the number of my room is {a}. which room is it?", "{a}"),
        ("they call me {x}. so what is my name?", "{x}"),
        ("she owns {a} cats, and also {b} dogs. what number of cats?", "{a}"),
    ),
}
