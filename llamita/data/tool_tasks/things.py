"""What notes and labels of the training split are made of: too many to be learned by heart.

None of it has a word that is a thing of the test split (`words`).
"""

from __future__ import annotations

DEEDS = {
    "goods": (
        *("buy", "get", "order", "bring", "find", "return", "pick up", "fetch", "take", "borrow"),
        *("lend", "choose", "carry", "collect", "look for", "ask for", "pack", "pay for", "share"),
        *("unpack", "prepare", "save", "give away", "try", "wrap", "put away"),
    ),
    "people": (
        *("call", "visit", "thank", "ask", "meet", "write to", "help", "invite", "greet", "see"),
        *("answer", "warn", "wake", "follow", "tell", "email", "talk to", "wait for", "remind"),
        *("listen to", "speak with", "drive", "congratulate", "text", "welcome", "pay", "hire"),
    ),
    "home": (
        *("clean", "fix", "paint", "check", "sell", "wash", "move", "repair", "dust", "measure"),
        *("polish", "cover", "replace", "mend", "sweep", "tidy", "inspect", "photograph"),
        *("decorate", "scrub", "show", "describe", "rent", "draw", "admire", "look at"),
        *("look after", "ask about", "take care of"),
    ),
    "papers": (
        *("pay", "send", "print", "read", "sign", "renew", "finish", "copy", "write", "find"),
        *("translate", "file", "scan", "correct", "hand in", "learn", "stamp", "publish", "cancel"),
        *("review", "share", "keep", "draft", "rewrite", "look over", "look at", "talk about"),
        *("explain", "hand over"),
    ),
}
# Goods of which there is some, or several.
FOOD = (
    *("milk", "bread", "apples", "cheese", "lemons", "salt", "coffee", "rice", "honey", "wine"),
    *("oranges", "butter", "flour", "oil", "vinegar", "pepper", "carrots", "cabbage", "garlic"),
    *("grapes", "cherries", "plums", "peaches", "nuts", "almonds", "raisins", "olives"),
    *("tomatoes", "beans", "lentils", "peas", "corn", "mushrooms", "spinach", "lettuce"),
    *("radishes", "beef", "ham", "bacon", "trout", "salmon", "herring", "oysters", "jam"),
    *("mustard", "yoghurt", "cookies", "crackers", "chocolate", "candy", "ice", "juice"),
    *("cider", "beer", "water", "lemonade", "oats", "barley", "herbs", "basil"),
)
SUPPLIES = (
    *("tickets", "stamps", "paint", "soap", "flowers", "paper", "batteries", "shoes", "seeds"),
    *("ink", "candles", "wood", "rope", "nails", "screws", "firewood", "charcoal", "matches"),
    *("string", "thread", "needles", "buttons", "wool", "silk", "cotton", "leather", "gloves"),
    *("socks", "slippers", "pyjamas", "sandals", "mittens", "towels", "sponges", "bleach"),
    *("shampoo", "toothpaste", "bandages", "pills", "vitamins", "envelopes", "pencils"),
    *("crayons", "chalk", "glue", "tape", "clips", "labels", "bulbs", "cables", "tiles"),
    *("bricks", "cement", "sand", "gravel", "hay", "straw", "compost", "tulips", "roses"),
)
# Goods that are counted.
ONE = (
    *("coat", "hat", "gift", "blanket", "map", "chain", "jacket", "scarf", "belt", "tie", "dress"),
    *("skirt", "shirt", "sweater", "cap", "bag", "basket", "bucket", "barrel", "bottle", "jar"),
    *("jug", "cup", "mug", "plate", "bowl", "fork", "knife", "pan", "pot", "grill", "toaster"),
    *("blender", "whisk", "funnel", "tray", "napkin", "cake", "pie", "melon", "pineapple", "goose"),
    *("turkey", "chicken", "pumpkin", "hammer", "saw", "drill", "shovel", "rake", "axe", "chisel"),
    *("broom", "brush", "mop", "hose", "lantern", "torch", "candlestick", "vase", "mat", "rug"),
    *("cushion", "mattress", "hammock", "tent", "rucksack", "suitcase", "trunk", "compass"),
    *("telescope", "camera", "radio", "guitar", "violin", "flute", "drum", "trumpet", "piano"),
    *("puzzle", "doll", "kite", "ball", "racket", "saddle", "bridle", "leash", "collar", "cage"),
    *("parrot", "kitten", "puppy", "hen", "goat", "pony", "notebook", "pencil", "ruler", "stapler"),
    *("calendar", "diary", "dictionary", "novel", "poster", "frame", "globe", "keyboard", "mouse"),
    *("screen", "charger", "adapter", "thermometer", "scale", "razor", "comb", "ring", "necklace"),
)
HOME = (
    *("kitchen", "bike", "gate", "car", "roof", "table", "room", "fence", "sink", "boat", "chair"),
    *("stairs", "watch", "oven", "floor", "clock", "curtains", "mirror", "cellar", "bell", "attic"),
    *("balcony", "terrace", "porch", "lawn", "hedge", "garden", "pond", "well", "pump", "barn"),
    *("stable", "greenhouse", "hut", "cottage", "chimney", "gutter", "drain", "pipe", "tap", "tub"),
    *("toilet", "cabinet", "wardrobe", "bookcase", "shelf", "bench", "stool", "sofa", "armchair"),
    *("cradle", "fridge", "freezer", "stove", "dishwasher", "fan", "boiler", "fireplace", "hall"),
    *("corridor", "nursery", "pantry", "workshop", "wall", "ceiling", "shutters", "blinds"),
    *("doorbell", "lock", "hinge", "handle", "mailbox", "driveway", "path", "bridge", "canoe"),
    *("sail", "anchor", "trailer", "tractor", "truck", "van", "scooter", "tyres", "brakes"),
    *("engine", "wheel", "sledge", "skis", "swing", "sandpit", "kennel", "hive", "nest", "statue"),
)
PAPERS = (
    *("rent", "passport", "letter", "contract", "report", "taxes", "book", "form"),
    *("invitation", "list", "speech", "chapter", "plan", "receipt", "poem", "essay", "song"),
    *("recipe", "article", "newspaper", "magazine", "thesis", "homework", "exam", "quiz"),
    *("syllabus", "timetable", "schedule", "programme", "menu", "leaflet", "brochure"),
    *("catalogue", "manual", "guide", "postcard", "telegram", "memo", "petition", "complaint"),
    *("apology", "proposal", "budget", "invoice", "cheque", "mortgage", "loan", "fee"),
    *("subscription", "licence", "permit", "certificate", "diploma", "treaty", "protocol"),
    *("questionnaire",),
)
ROLES = (
    *("captain", "landlord", "dentist", "baker", "king", "teacher", "lawyer", "queen"),
    *("mother", "brother", "cousin", "friend", "grandfather", "father", "grandmother", "niece"),
    *("nephew", "daughter", "son", "husband", "wife", "partner", "boss", "doctor", "nurse"),
    *("chemist", "butcher", "grocer", "tailor", "barber", "gardener", "painter", "carpenter"),
    *("mason", "roofer", "electrician", "mechanic", "driver", "pilot", "sailor", "farmer"),
    *("miller", "shepherd", "hunter", "fisherman", "cook", "waiter", "hostess", "maid"),
    *("butler", "clerk", "accountant", "secretary", "director", "editor", "author", "poet"),
    *("singer", "actor", "dancer", "coach", "referee", "judge", "sheriff", "soldier"),
    *("general", "mayor", "senator", "bishop", "priest", "monk", "nun", "student", "professor"),
    *("tutor", "tenant", "guests"),
)
# Where somebody can be called or written to.
OFFICES = (
    *("bank", "school", "office", "hotel", "embassy", "museum", "clinic", "hospital"),
    *("theatre", "club", "court", "church", "town hall", "bakery", "pharmacy", "post office"),
    *("university", "police", "newspaper"),
)
TITLES = ("doctor", "lady", "uncle", "captain", "professor", "miss", "sir", "cousin", "old", "lord")
SPOTS = (
    *("stone", "drawer", "bank", "harbour", "shelf", "table", "sofa", "mat", "stairs", "cellar"),
    *("attic", "oven", "hat", "box", "barn", "well", "oak", "bridge", "church", "hotel", "safe"),
    *("car", "boat", "garden", "kitchen", "office", "school", "clock", "mirror", "piano", "vase"),
    *("basket", "jar", "trunk", "suitcase", "fridge", "chimney", "hedge", "fence", "statue"),
)
WHERE = ("in", "under", "behind", "on", "above", "below", "at", "next to", "opposite", "over")
# What suits anything, what has a shape, and what is eaten.
ADJECTIVES = (
    *("old", "good", "fine", "rare", "cheap", "last", "other", "next", "second", "small"),
    *("long", "lovely", "strange", "famous", "secret", "french", "german", "spanish", "dutch"),
    *("english", "russian", "chinese", "best", "whole", "usual", "special", "first", "third"),
    *("right", "wrong", "extra", "simple", "modern", "italian", "greek", "swedish", "early"),
    *("late", "nice", "great", "real", "plain"),
)
SHAPED = (
    *("red", "green", "warm", "strong", "broken", "soft", "clean", "round", "square", "heavy"),
    *("light", "thick", "thin", "wide", "narrow", "high", "low", "sharp", "smooth", "rough"),
    *("dry", "wet", "rusty", "dusty", "dirty", "shiny", "golden", "silver", "purple", "pink"),
    *("brown", "grey", "black", "striped", "dotted", "fancy", "pretty", "ugly", "tiny", "huge"),
    *("giant", "painted", "carved", "folded", "empty", "used", "solid", "loose"),
)
TASTES = (
    *("fresh", "cold", "hot", "sweet", "sour", "bitter", "salty", "ripe", "raw", "dry"),
    *("spicy", "frozen", "good", "cheap", "fine", "french", "italian", "local", "cheaper"),
    *("better", "dark", "light"),
)
WHEN = (
    *("tomorrow", "tonight", "today", "on monday", "on friday", "next week", "before lunch"),
    *("this evening", "after work", "at noon", "on sunday morning", "in the afternoon", "soon"),
    *("on tuesday", "on wednesday", "on thursday", "on saturday", "next month", "in may"),
    *("in spring", "in winter", "at dawn", "at midnight", "after dinner", "before school", "later"),
    *("this week", "next year", "on my way", "by friday", "every day", "at once", "for christmas"),
    *("in october", "before breakfast", "after the show", "when it rains", "for the party"),
)
TIMED = (
    *("bread", "rice", "break", "walk", "soup", "run", "coffee", "cake", "dance", "rest", "game"),
    *(
        "sauce",
        "fish",
        "oven",
        "bath",
        "speech",
        "lesson",
        "watch",
        "pie",
        "stew",
        "dinner",
        "song",
    ),
    *("nap", "wash", "fire", "ride", "beans", "corn", "cocoa", "porridge", "dough", "cookies"),
    *("muffins", "toast", "bacon", "chicken", "turkey", "steak", "ribs", "salmon", "noodles"),
    *("dumplings", "lentils", "broccoli", "carrots", "pudding", "jam", "fudge", "popcorn", "broth"),
    *("breakfast", "lunch", "supper", "picnic", "plank", "squats", "yoga", "sprint", "climb"),
    *(
        "boxing",
        "football",
        "tennis",
        "chess",
        "cards",
        "quiz",
        "puzzle",
        "exam",
        "test",
        "reading",
    ),
    *("homework", "practice", "piano", "choir", "rehearsal", "scene", "prayer", "silence", "sleep"),
    *("dryer", "dishes", "sprinkler", "pump", "glue", "paint", "varnish", "mask", "dye", "ice"),
    *("charger", "download", "backup", "interview", "debate", "parking", "train", "bus", "ferry"),
)
TIMED_KINDS = (
    *("soft", "green", "black", "hot", "long", "short", "slow", "quick", "rye", "white"),
    *("sweet", "big", "small", "morning", "evening", "deep", "dark", "cold", "warm", "first"),
    *("second", "last", "next", "final", "early", "late", "daily", "weekly", "old", "new"),
    *("red", "brown", "spicy", "sour", "fresh", "frozen", "fried", "baked", "boiled"),
    *("roasted", "family", "garden", "kitchen", "school", "office", "winter", "summer"),
    *("night", "noon", "monday", "birthday", "team", "baby", "hard", "easy", "light", "heavy"),
    *("quiet", "loud", "secret", "special"),
)
# Two words before a thing: "quick evening walk".
TIMED_FIRST = (
    *("long", "short", "slow", "quick", "small", "big", "first", "second", "last", "next"),
    *("final", "early", "late", "daily", "weekly", "hard", "easy", "light", "quiet", "loud"),
    *("secret", "special"),
)
TIMED_SECOND = (
    *("morning", "evening", "family", "garden", "kitchen", "school", "office", "winter"),
    *("summer", "night", "monday", "birthday", "team", "sunday", "friday", "village", "river"),
    *("forest", "holiday", "guest"),
)
