"""Names of people and places, and colours, for what is said in the training split."""

from __future__ import annotations

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.invented import invented_name

_INVENTED = 0.4

PEOPLE = (
    *("Adam", "Agnes", "Alan", "Albert", "Alice", "Amelia", "Amir", "Andrew", "Anna", "Anton"),
    *("Arthur", "Astrid", "Barbara", "Beatrice", "Bella", "Ben", "Bertram", "Bianca", "Boris"),
    *("Brian", "Camilla", "Carl", "Carmen", "Carol", "Cecil", "Chen", "Clara", "Claudio", "Colin"),
    *("Daniel", "David", "Diana", "Doris", "Duncan", "Edith", "Elena", "Elias", "Elizabeth"),
    *("Emil", "Emma", "Eric", "Esther", "Eva", "Fatima", "Felix", "Fiona", "Flora", "Frank"),
    *("Fred", "George", "Gerald", "Gloria", "Grace", "Greta", "Gustav", "Hannah", "Harry"),
    *("Hector", "Helen", "Henry", "Hugo", "Ida", "Ines", "Irene", "Isaac", "Ivan", "Jack", "James"),
    *("Jane", "Jasper", "Jean", "Joan", "John", "Jonas", "Joseph", "Judith", "Julia", "Karim"),
    *(
        "Karl",
        "Kate",
        "Kenji",
        "Klaus",
        "Lars",
        "Leo",
        "Leonard",
        "Lewis",
        "Lily",
        "Linda",
        "Louis",
    ),
    *("Lucas", "Lucy", "Magda", "Marco", "Margaret", "Maria", "Mark", "Martha", "Martin", "Max"),
    *("Mercy", "Michael", "Mira", "Monica", "Naomi", "Nathan", "Nicholas", "Nina", "Oliver"),
    *("Olga", "Omar", "Oscar", "Otto", "Pablo", "Pamela", "Patrick", "Peter", "Philip", "Portia"),
    *("Priya", "Quentin", "Rachel", "Ralph", "Rex", "Richard", "Rita", "Robert", "Robin", "Romeo"),
    *("Rosa", "Rose", "Ruth", "Sally", "Samuel", "Sandra", "Sarah", "Sean", "Silvia", "Simon"),
    *("Sofia", "Stella", "Steven", "Susan", "Tanya", "Teresa", "Theo", "Thomas", "Tim", "Tom"),
    *("Toby", "Tybalt", "Ursula", "Victor", "Walter", "Wanda", "William", "Xavier", "Yara"),
    *("Yusuf", "Zoe"),
)
PLACES = (
    *("Rome", "Paris", "London", "Venice", "Athens", "Verona", "Milan", "York", "Accra", "Berlin"),
    *("Bergen", "Bern", "Boston", "Bristol", "Brussels", "Cairo", "Calais", "Chicago", "Cologne"),
    *("Cork", "Cyprus", "Dallas", "Delhi", "Denver", "Dover", "Dublin", "Egypt", "Exeter"),
    *("Florence", "France", "Geneva", "Genoa", "Ghent", "Glasgow", "Hanoi", "Harlem", "Hull"),
    *("India", "Istanbul", "Jakarta", "Kent", "Kyoto", "Lagos", "Leeds", "Leipzig", "Lisbon"),
    *("Lyon", "Madrid", "Malta", "Mantua", "Messina", "Mexico", "Munich", "Nairobi", "Naples"),
    *("Norway", "Osaka", "Oslo", "Oxford", "Perth", "Peru", "Pisa", "Porto", "Prague", "Quebec"),
    *("Riga", "Salem", "Scotland", "Seoul", "Seville", "Sicily", "Spain", "Sydney", "Tallinn"),
    *("Tokyo", "Toronto", "Tunis", "Turin", "Utrecht", "Wales", "Warsaw", "Windsor", "Zurich"),
)
COLOURS = (
    *("red", "blue", "green", "black", "white", "brown", "grey", "pink", "purple", "orange"),
    *("golden", "silver", "violet", "scarlet", "crimson", "beige", "olive", "turquoise"),
)


def person(dice: Dice) -> str:
    """A first name that there is, or one that there is not."""
    return invented_name(dice) if dice.chance(_INVENTED) else dice.pick(PEOPLE)


def place(dice: Dice) -> str:
    """A town or country that there is, or one that there is not."""
    return invented_name(dice) if dice.chance(_INVENTED) else dice.pick(PLACES)
