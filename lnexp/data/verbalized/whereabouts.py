"""Sentences about where things are, go and come from, and who gave, made or put them."""

from __future__ import annotations

from lnexp.data.verbalized import cldr, english, german, lexicon, scenes, verbs
from lnexp.data.verbalized.facts import Draw
from lnexp.data.verbalized.phrases import clause, noun_phrase
from lnexp.data.verbalized.scenes import strings

Pair = tuple[str, str]


def distance(d: Draw) -> Pair:
    """*Vom Bahnhof bis zum Park sind es zwei Kilometer.*."""
    unit, most = d.pick([("kilometer", 30), ("meter", 900)])
    here, there, n = d.fact(
        "distance",
        *[sorted(lexicon.places())] * 2,
        strings(range(2, most)),
    )
    if here == there:
        return distance(d)
    a, b = (noun_phrase(lexicon.places()[word][0]) for word in (here, there))
    de, en = cldr.quantity(int(n), f"length-{unit}")
    return (
        f"{german.contract('von', a.dat)} bis {german.contract('zu', b.dat)} sind es {de}",
        f"it is {en} from {a.en} to {b.en}",
    )


def there_are(d: Draw) -> Pair:
    """*Im Park gibt es drei alte Hunde.*."""
    where, label = d.pick(["Park", "Wald", "Garten", "Fabrik", "Hotel", "Museum"]), "animal"
    if where in ("Fabrik", "Hotel", "Museum"):
        label = d.pick(("thing", "machine"))
    word, n, _ = d.fact("there are", scenes.words_of(label), strings(range(1, 60)), [where])
    noun, adjective = lexicon.nouns()[label][word], d.pick(lexicon.adjectives(label))
    one = noun_phrase(noun, "ein", adjective)
    de_where, en_where = scenes.site(where)[:2]
    if n == "1":
        return f"{de_where} gibt es {one.acc}", f"there is {one.en} {en_where}"
    det = (german.number(int(n)), english.number(int(n)))
    many = noun_phrase(noun, det, adjective, plural=True)
    return f"{de_where} gibt es {many.acc}", f"there are {many.en} {en_where}"


_ON = (("auf", "on"), ("unter", "under"), ("neben", "next to"), ("hinter", "behind"))


def position(d: Draw) -> Pair:
    """Accusative where something is put, dative where it lies."""
    label = d.pick(("thing", "text", "clothes"))
    word, furniture, key = d.fact(
        "position", scenes.words_of(label), sorted(lexicon.furniture()), lexicon.subjects()
    )
    np, spot = scenes.known(d, label, word), noun_phrase(lexicon.furniture()[furniture])
    de, en = d.pick(_ON)
    if d.chance(2):
        return f"{np.nom} liegt {de} {spot.dat}", f"{np.en} is lying {en} {spot.en}"
    who = scenes.person(d, key)
    when_de, when_en = scenes.when(d, "past")
    sentence = clause(who, lexicon.verb("legen"), "perfect", f"{np.acc} {de} {spot.acc}")
    return sentence.main(when_de), f"{when_en} {who.en} put {np.en} {en} {spot.en}"


def gift(d: Draw) -> Pair:
    """Dative before accusative: *gibt dem Kind einen Ball*."""
    key, option, to = d.fact(
        "gift", lexicon.subjects(), lexicon.options(verbs.GIVING), lexicon.subjects("third")
    )
    who, receiver = scenes.person(d, key), scenes.person(d, to)
    if key == to:
        receiver = noun_phrase(scenes.CHILD, human=True)
    de, en, label, word = option.split(";")
    np, (when_de, when_en) = scenes.thing(d, label, word), scenes.when(d, "past")
    objects = f"{when_de} {receiver.dat} {np.acc}"
    sentence = clause(who, lexicon.verb(de), "perfect", objects).main()
    past = english.verb(en, "past")
    return sentence, f"{who.en} {past} {receiver.en_object} {np.en_object} {when_en}"


_YEARS = strings(range(1802, 2024))
_MADE = (
    ("text", "schreiben", "written"), ("text", "übersetzen", "translated"),
    ("text", "lesen", "read"), ("machine", "reparieren", "repaired"),
    ("building", "zeichnen", "drawn"), ("food", "bestellen", "ordered"),
    ("opening", "öffnen", "opened"), ("room", "auf|räumen", "tidied up"),
)  # fmt: skip


def passive(d: Draw) -> Pair:
    """*wurde von der Lehrerin geschrieben*; *wurde im Jahr ... gebaut*."""
    if d.chance(1):
        word, n, country = d.fact(
            "built",
            scenes.words_of("building"),
            strings(range(1802, 2024)),
            sorted(cldr.territories()),
        )
        np, place = scenes.known(d, "building", word), cldr.territories()[country]
        year = int(n)
        built = d.pick([f"in {place.english}", ""])
        where = f" {place.where}" if built else ""
        return (
            f"{np.nom}{where} wurde im Jahr {german.year(year)} gebaut",
            f"{np.en} {built} was built in {english.year(year)}".replace("  ", " "),
        )
    label, verb, participle = d.pick(_MADE)
    key, word, _ = d.fact("made", lexicon.subjects("third"), scenes.words_of(label), [verb])
    who, np = scenes.person(d, key), scenes.known(d, label, word)
    sentence = clause(np, lexicon.verb(verb), "passive", german.contract("von", who.dat))
    return sentence.main(), f"{np.en} was {participle} by {who.en_object}"


def floor(d: Draw) -> Pair:
    """*wohnt im dritten Stock*, *lives on the third floor*."""
    key, n = d.fact("floor", lexicon.subjects(), [str(i) for i in range(1, 31)])
    who = scenes.person(d, key)
    form = "third" if who.person == "3s" else "base"
    sentence = clause(
        who, lexicon.verb("wohnen"), "present", f"im {german.ordinal(int(n), 'en')} Stock"
    ).main()
    return sentence, f"{who.en} {english.verb('live', form)} on the {english.ordinal(int(n))} floor"


def weather(d: Draw) -> Pair:
    """*Im Januar ist es in Norwegen kälter als in Italien.*."""
    month, here, there = d.fact("weather", scenes.MONTHS, *[sorted(cldr.territories())] * 2)
    de_month, en_month = cldr.months()[int(month)]
    a, b = (cldr.territories()[code] for code in (here, there))
    if here == there or d.chance(1):
        de, en = d.pick([("regnet es", "rains"), ("schneit es", "snows")])
        how, en_how = d.pick([("oft", "often"), ("selten", "rarely")])
        return (
            f"im {de_month} {de} {a.where} {how}",
            f"in {en_month} it {en_how} {en} in {a.english}",
        )
    de, en = d.pick([("kälter", "colder"), ("wärmer", "warmer"), ("trockener", "drier")])
    return (
        f"im {de_month} ist es {a.where} {de} als {b.where}",
        f"in {en_month} it is {en} in {a.english} than in {b.english}",
    )


def at_site(d: Draw) -> Pair:
    """Something done somewhere: time before place in German, after it in English."""
    key, act, where = d.fact(
        "act", lexicon.subjects(), lexicon.options(verbs.PLACED), sorted(lexicon.places())
    )
    who, (de, en) = scenes.person(d, key), act.split(";")[:2]
    de_where, en_where = scenes.site(where)[:2]
    if d.chance(2):
        when_de, when_en = scenes.when(d, "now")
        sentence = clause(who, lexicon.verb(de), "present", f"{when_de} {de_where}").main()
        return (
            sentence,
            f"{who.en} {english.finite(en, 'progressive', who.person)} {en_where} {when_en}",
        )
    when_de, when_en = scenes.when(d, "past")
    sentence = clause(who, lexicon.verb(de), "perfect", f"{when_de} {de_where}").main()
    return sentence, f"{who.en} {english.verb(en, 'past')} {en_where} {when_en}"


_HAD_DONE = (
    ("machine", "reparieren", "repaired"), ("clothes", "waschen", "washed"),
    ("clothes", "bügeln", "ironed"), ("text", "übersetzen", "translated"),
    ("room", "putzen", "cleaned"), ("building", "zeichnen", "drawn"),
    ("person", "abholen", "picked up"), ("thing", "einpacken", "packed"),
)  # fmt: skip


def has_done(d: Draw) -> Pair:
    """*lässt das Auto reparieren*, *is having the car repaired*."""
    label, verb, participle = d.pick(_HAD_DONE)
    key, word, _ = d.fact("has done", lexicon.subjects(), scenes.words_of(label), [verb])
    who, np = scenes.person(d, key), scenes.known(d, label, word)
    when_de, when_en = scenes.when(d, "now")
    let = lexicon.verb("lassen").present(who.person)
    return (
        f"{who.nom} {let} {when_de} {np.acc} {verb}",
        f"{who.en} {english.be(who.person)} having {np.en_object} {participle} {when_en}",
    )


def during(d: Draw) -> Pair:
    """*während* with the genitive, *nach* and *vor* with the dative."""
    de, en, case = d.pick([("während", "during", "gen"), ("nach", "after", "dat"),
                           ("vor", "before", "dat")])  # fmt: skip
    acts = lexicon.options(verbs.PLACED)
    key, act, event = d.fact("during", lexicon.subjects(), acts, scenes.words_of("event"))
    who, np = scenes.person(d, key), scenes.known(d, "event", event)
    verb, en_verb = act.split(";")[:2]
    phrase = f"{de} {np.gen if case == 'gen' else np.dat}"
    sentence = clause(who, lexicon.verb(verb), "perfect", "").main(phrase)
    return sentence, f"{en} {np.en} {who.en} {english.verb(en_verb, 'past')}"


WHEREABOUTS = (
    distance, there_are, position, gift, gift, passive, floor, weather, at_site, has_done,
    during,
)  # fmt: skip
