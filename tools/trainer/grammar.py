"""Grammars: sentence patterns with {holes}, which draw.py fills from words.py. A bar separates alternatives."""

from words import words

FILLER = """The wind blew over the {place}.|A {adj} {obj} lay near the {place}.|Rain fell on the {place} all {time}.
Some people {verb} at the {place} in the {time}.|The {animal} {verb} near the {place}.|Nobody knew why the {place} was so {mood}.
It was a {mood} {time} at the {place}.|Two {job}s crossed the {mood} {place}.|The {place} was {mood} in the {time}.
Somebody left a {obj} and a {obj} by the door.|Most of the {food} was sold before the {time}.|The {animal} looked at the {adj} {obj}.
Every {time} the {job} {verb} near the {place}.|There was {food} and {food} on the {adj} table.|The road to the {place} was long.
They talked about the {place} and then {verb}.|After that, the {animal} {verb} and the {animal} {verb}.""".replace(
    "\n", "|"
).split("|")
# Facts of a text: the statement, which is also the answer, and questions; {N} {C} {P} {A} are keys, each used once in a text
FACTS = [
    ("The locker of {N} holds a {adj} {obj}.", "What does the locker of {N} hold?|What is in the locker of {N}?"),
    ("The code for {P} is {d4}.", "What is the code for {P}?|Tell me the code for {P}."),
    ("{N} lives in {city}.", "Where does {N} live?|In which city does {N} live?"),
    ("{N} works as a {job}.", "What is the job of {N}?|What does {N} work as?"),
    ("{N} is {d2} years old.", "How old is {N}?|What is the age of {N}?"),
    ("The password of {N} is {obj}-{food}.", "What is the password of {N}?|Tell me the password of {N}."),
    ("{N} likes {food}.", "What does {N} like?|Which food does {N} like?"),
    ("The {A} box contains {d2} {things}.", "What does the {A} box contain?|What is in the {A} box?"),
    ("The train to {C} leaves at {hm}.", "When does the train to {C} leave?|At what time does the train to {C} leave?"),
]
BOX = FACTS[7]
# Facts that the model knows without a text, in rows of (ways to ask, key, answer).
CAPITALS = dict(
    zip(
        words(
            "France Italy Norway Spain Germany Austria Ireland Portugal Greece Poland Finland Sweden Belgium Hungary Kenya"
            " Cuba Japan Egypt Peru India Turkey Thailand Vietnam Latvia Tunisia"
        ),
        words(
            "Paris Rome Oslo Madrid Berlin Vienna Dublin Lisbon Athens Warsaw Helsinki Stockholm Brussels Budapest Nairobi"
            " Havana Tokyo Cairo Lima Delhi Ankara Bangkok Hanoi Riga Tunis"
        ),
    )
)
COLOURS = dict(
    sky="blue", grass="green", snow="white", coal="black", blood="red", honey="golden", chocolate="brown", sun="yellow"
)
OPPOSITES = dict(
    hot="cold",
    big="small",
    up="down",
    day="night",
    fast="slow",
    old="young",
    happy="sad",
    open="closed",
    early="late",
    wet="dry",
    full="empty",
    light="dark",
    left="right",
    strong="weak",
)
LEGS = dict(spider="eight", dog="four", bird="two", ant="six", snake="no", horse="four")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
KNOWN = [
    (
        (
            "What is the capital of {k}?|Which city is the capital of {k}?|Name the capital of {k}.|Tell me the capital of {k}."
            "|Do you know the capital of {k}?"
        ),
        k,
        f"The capital of {k} is {v}.",
    )
    for k, v in CAPITALS.items()
]
KNOWN += [
    (
        ("What colour is {k}?|Which colour does {k} have?|Tell me the colour of {k}.|What is the colour of {k}?"),
        "the sun" if k == "sun" else "the sky" if k == "sky" else k,
        f"The colour of {k} is {v}.",
    )
    for k, v in COLOURS.items()
]
KNOWN += [
    (
        "What is the opposite of {k}?|Tell me the opposite of {k}.|Which word is the opposite of {k}?|Name the opposite of {k}.",
        k,
        f"The opposite of {k} is {v}.",
    )
    for k, v in OPPOSITES.items()
]
KNOWN += [
    (
        "How many legs does a {k} have?|Tell me how many legs a {k} has.|Do you know how many legs a {k} has?",
        k,
        f"A {k} has {v} legs.",
    )
    for k, v in LEGS.items()
]
KNOWN += [
    (
        "Which day comes after {k}?|What day follows {k}?|Tell me the day after {k}.|What is the day after {k}?",
        k,
        f"The day after {k} is {DAYS[(i + 1) % 7]}.",
    )
    for i, k in enumerate(DAYS)
]
CHAT = [
    ("Hello|Hi|Hello!|Hi there!|Hey", "Hello! How can I help you?"),
    ("Good morning|Good morning!", "Good morning! How can I help you?"),
    ("How are you?|How are you today?|Are you well?", "I am fine, thank you. What can I do for you?"),
    ("Who are you?|What is your name?|What are you?", "I am a tiny test model for Baton."),
    (
        "What can you do?|How can you help me?|Help",
        "I can find facts in a text, do small sums, repeat and spell words, and tell short stories.",
    ),
    ("Thank you|Thanks!|Thank you very much.|Thanks", "You are welcome!"),
    ("Bye|Goodbye!|See you later.|Goodbye", "Goodbye! Have a nice day."),
]
STORY = [  # a story takes one of each row; {N} is the {animal}, {M} the {friend}
    "Once upon a time, a {adj} {animal} named {N} lived near a {place}.|Long ago, there was a {animal} named {N} who lived by a {mood} {place}."
    "|In a {mood} land, a young {animal} named {N} had a home beside a {place}.",
    "Every {time}, {N} walked around the {place} and looked for {food}.|{N} loved the {place} and knew every stone of it."
    "|People said that nobody loved the {place} more than {N}.|{N} liked {food}, but most of all {N} liked the {place}.",
    "One {time}, {N} lost a {adj2} {obj} that was very dear.|One {time}, a {adj2} {obj} fell into the {place}, and {N} saw it."
    "|One {time}, {N} heard that a {adj2} {obj} was hidden near the {place}.",
    "{N} looked everywhere, but the {obj} was gone.|It was getting dark, and {N} could not find the {obj}."
    "|{N} searched for a long time and became very tired.",
    "Then a {friend} named {M} came along and asked what was wrong.|Then {N} met a {friend} named {M}, who wanted to help."
    "|A kind {friend} named {M} heard the noise and came closer.",
    '"I am looking for my {obj}," said {N}. "Will you help me?"|{N} told {M} about the {obj}, and {M} listened with care.'
    '|"Do not worry," said {M}. "We will find the {obj} together."',
    "Together they looked under every tree and behind every stone.|{M} had sharp eyes, and {N} had a good plan."
    "|So the {animal} and the {friend} went along the {place} side by side.",
    "At last {M} saw something {adj2} under a leaf.|After a while, {N} found the {obj} between two old trees."
    "|When the moon came up, the {obj} was shining in the grass.",
    "{N} was so happy that they shared some {food} to celebrate.|They laughed and ate {food} until the sun went down."
    "|{N} thanked {M} and gave {M} a bag of {food}.",
    "From that day on, {N} and {M} were the best of friends.|And from then on, {N} never walked alone at the {place} again."
    "|That is how the {animal} and the {friend} became friends.",
]
STORY_ASK = (
    "Tell me a story about a {animal} and a {place}.|Tell a short story about a {animal} and a {place}.|Write a story about a"
    " {animal} at a {place}.|Can you tell me a story about a {animal} and a {place}?|I would like a story about a {animal} and a {place}."
)
DESCRIBE = [
    "The {place} is a {mood} place in the {time}.|It is a {mood} {place}, far away from the city.",
    "You can see a {animal} and a"
    " {animal2} there, and the air is {adj}.|A {adj} path leads to it, and a {animal} often walks there.",
    "People go there to rest and to eat {food}.|In the {time}, the {job} goes there to rest.",
    "Those who visit the {place} always want to come back.|Nobody forgets the {place} after the first visit.",
]
TOOLS = dict(
    get_weather=("Get the weather in a city.", "city", "string"),
    get_time=("Get the local time in a city.", "city", "string"),
    calculator=("Calculate an expression.", "expression", "string"),
    set_timer=("Set a timer.", "minutes", "integer"),
)
# Plain English for the tokenizer alone: the model never sees it.
ENGLISH = """A server reads a request, finds a worker, and sends the answer back piece by piece. The first worker reads the prompt, and the
second worker writes the answer. When one runner is tired, the next runner takes the baton and keeps going. Please write your question in a
few words. This is a small model, so it makes mistakes. If you do not understand something, ask again in other words. She opened the letter,
read it twice, and put it back. He has been here before, but he could not remember when. We will go home as soon as the rain stops. They
should have taken the other road. What would you like to do next? Which of these is yours? Children learn quickly when they are having fun.
Water becomes ice when it is cold enough. Numbers can be added, subtracted, multiplied and divided. The quick brown fox jumps over the lazy
dog. You must not forget to close the window before you leave. There is nothing better than a good book on a rainy day. I think that you are
right about this. Her brother and his sister were both born in the same year. Many years later, the old man told us everything that had
happened. Why did you not call me? Because I thought that you were already asleep. Could you please explain how this works? First, take the
lid off. Second, pour in the water. Finally, wait until it boils. Is it true that the world is round? Yes, of course it is."""
