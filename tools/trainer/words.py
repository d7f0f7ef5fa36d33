"""Word lists. They are all the vocabulary that the demo model has; none of it is taken from a text."""


def words(text):
    return text.split()


NAMES = words(
    """Mira Tomas Lena Oskar Priya Felix Nadia Hugo Clara Ivan Rosa Emil Greta Samir Yuki Pablo Ingrid Leo Amara Viktor
 Zoe Mateo Hana Ravi Elsa Omar Nina Kofi Marta Jonas Aisha Bruno Tessa Milo Dora Anton Lucia Finn Selma Karim Ada Boris
 Carmen Dario Eva Farid Gina Henrik Ines Jamal Kira Lars Maya Nils Olga Pedro Quinn Rita Sven Tara Umar Vera Walter Yara"""
)
ADJ = words(
    """red blue green yellow white black brown golden silver pink purple small large round heavy new wooden shiny soft
 bright dusty broken warm cold tiny smooth sharp plain striped narrow rusty polished painted fragile hollow"""
)
OBJ = words(
    """lantern key map book clock ring rope bell mirror coin cup candle basket drum flute hammer kettle lamp needle pearl
 ribbon shell spoon stone tent vase whistle blanket brush button camera chain compass crown feather glove helmet jar kite
 ladder magnet notebook paddle pencil pillow puzzle scarf shovel table ticket towel trumpet violin wallet wheel window"""
)
PLACE = words(
    """river mountain forest garden bridge tower castle harbor island valley desert meadow village library kitchen
 cellar stable market station museum theater temple school hospital bakery lake hill cave beach barn"""
)
CITY = words(
    """Oslo Paris Rome Cairo Lima Delhi Tokyo Madrid Berlin Vienna Dublin Lisbon Prague Athens Warsaw Helsinki Stockholm
 Brussels Budapest Nairobi Havana Toronto Boston Chicago Denver Sydney Mumbai Seoul Bangkok Hanoi Ankara Dakar Tunis Riga"""
)
JOB = words(
    "baker doctor teacher pilot farmer sailor painter gardener nurse writer singer carpenter tailor driver potter judge"
)
FOOD = words(
    "bread soup rice cheese honey apples pears lemons plums beans nuts grapes carrots tea cake pasta fish salad"
)
THINGS = words(
    "apples pears lemons plums beans nuts grapes carrots coins keys books rings bells cups candles needles pearls shells stones buttons"
)
COLOUR, STORY_OBJ = ADJ[:10], words(
    "lantern key map book bell mirror coin drum flute lamp ribbon shell feather kite scarf violin ring crown whistle"
)
ANIMAL = words(
    "fox owl bear rabbit wolf mouse deer cat dog horse goat frog turtle crow duck squirrel badger otter lion hen"
)
MOOD = words("quiet calm strange happy lonely busy dark sunny gentle famous empty peaceful windy foggy pleasant")
TIME = words("morning evening night afternoon winter summer spring autumn day")
VERB = words("walked ran slept waited sang played worked looked sat rested danced laughed")
POOL = sorted(
    set(ADJ + OBJ + PLACE + JOB + FOOD + ANIMAL + MOOD + TIME + VERB)
)  # words that lists and spelling draw from
SYL = words(
    "ba be bi bo da de di do fa fe fi ga go ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe ra re ri ro sa se"
    " si so ta te ti to va ve vi wa wo za ze zo lan mor tin ran sel dor vek zul nim"
)
UNI = [
    "é è ü ö ä ñ ç å ø ß ê î",
    "α β γ δ λ π σ ω",
    "д ж и л м н п р с т ф я",
    "日 本 語 中 文 字 山 川 水 火",
    "😀 🚀 🌍 🎉 🐱 ✅ 🔥",
    "→ € £ ° … “ ” — × ½",
    "한 국 어",
    "ع ر ب ي",
]
