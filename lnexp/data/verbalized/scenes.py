"""What sentences are made of: people, things, deeds, places and times, drawn as facts.

Every function takes its facts from a ``Draw``; how they are worded is the draw's free choice.
"""

from __future__ import annotations

from functools import cache

from lnexp.data.verbalized import cldr, english, german, lexicon, verbs, words
from lnexp.data.verbalized.facts import Draw
from lnexp.data.verbalized.phrases import (
    PRONOUNS,
    Deed,
    Noun,
    NounPhrase,
    name,
    noun_phrase,
)

Pair = tuple[str, str]
CHILD = Noun("n", "Kind", "Kinder", "child")
_OWNED = ("thing", "clothes", "text", "machine", "animal")


@cache
def strings(numbers: range) -> list[str]:
    """A column of numbers for ``Draw.fact``, without those that end in 01 (past one itself)."""
    return [str(n) for n in numbers if n == 1 or n % 100 != 1]


def person(d: Draw, key: str) -> NounPhrase:
    """The noun phrase of a subject key, sometimes with an adjective."""
    if key in PRONOUNS:
        return PRONOUNS[key]
    if key in lexicon.names():
        return name(key, "f" if key in words.FEMALE.split() else "m")
    det, noun = key.split(" ")
    if det == "mein":
        return noun_phrase(lexicon.family()[noun], d.pick(["mein", "mein", "unser"]), human=True)
    grown = noun != "Junge"
    adjective = d.pick(lexicon.adjectives("person")) if d.chance(1) and grown else None
    if noun == "Kinder":
        return noun_phrase(CHILD, "der", None, plural=True, human=True)
    found = lexicon.nouns()["person"][noun]
    return noun_phrase(found, "der", adjective, plural=det == "die", human=True)


def thing(
    d: Draw, label: str, word: str, owner: NounPhrase | None = None, definite: bool = False
) -> NounPhrase:
    """The noun phrase of a noun, with a free choice of determiner, adjective and number."""
    if label == "name":
        return person(d, word)
    if label == "family":
        whose = owner.possessive() if owner else "mein"
        return noun_phrase(lexicon.family()[word], whose, human=True)
    noun = lexicon.nouns()[label][word]
    plural = d.chance(1)
    determiners: list[str | Pair] = ["der", "der", "dieser"]
    if not definite:
        determiners += ["ein", "ein", "ein"]
    if owner and label in _OWNED:
        determiners += [owner.possessive()]
    adjective = d.pick(lexicon.adjectives(label)) if d.chance(1) else None
    human = label == "person"
    return noun_phrase(noun, d.pick(determiners), adjective, plural=plural, human=human)


def deed(
    d: Draw, who: str = "any", kind: str = "", active: bool = False, definite: bool = False
) -> Deed:
    """Somebody doing something.

    ``who`` is a kind of ``lexicon.subjects``; ``kind`` is object, act, or "" for any; ``active``
    avoids verbs that name no action; ``definite`` objects can stand before *nicht*.
    """
    r = d.below(16)
    table = verbs.TRANSITIVE if r < 10 else verbs.DATIVE if r < 12 else verbs.ACTS
    if kind:
        table = verbs.TRANSITIVE if kind == "object" else verbs.ACTS
    key, option = d.fact("deed", lexicon.subjects(who), lexicon.options(table, active))
    return deed_of(d, key, option, table is verbs.DATIVE, definite)


def deed_of(d: Draw, key: str, option: str, dative: bool = False, definite: bool = False) -> Deed:
    """The deed of a subject key and a verb option of the lexicon."""
    subject = person(d, key)
    de, en, label, word = option.split(";")
    verb = lexicon.verb(de)
    if not label:
        return Deed(subject, verb, en, "", "")
    found = thing(d, label, word, subject, definite)
    if word == key.rpartition(" ")[2]:  # nobody calls himself
        found = noun_phrase(CHILD, human=True)
    return Deed(subject, verb, en, found.dat if dative else found.acc, found.en_object)


def two_deeds(d: Draw, who: str = "any", active: bool = False) -> tuple[Deed, Deed]:
    """What two different people do, with nobody named twice."""
    while True:
        first, second = deed(d, who, active=active), deed(d, who, active=True)
        people = [first.subject.en, first.object_en, second.subject.en, second.object_en]
        named = [p for p in people if p]
        if len(set(named)) == len(named):
            return first, second
        del d.facts[-2:]


_WHEN = {
    "past": "gestern=yesterday,vorgestern=the day before yesterday,letzte Woche=last week,"
    "letzten Monat=last month,letztes Jahr=last year,heute Morgen=this morning,"
    "gestern Abend=yesterday evening,im letzten Sommer=last summer",
    "now": "jetzt=now,gerade=at the moment",
    "habit": "jeden Tag=every day,jeden Morgen=every morning,jede Woche=every week,"
    "jedes Jahr=every year,am Wochenende=at the weekend,im Winter=in winter,"
    "im Frühling=in spring,einmal im Monat=once a month,zweimal in der Woche=twice a week",
    "future": "morgen=tomorrow,übermorgen=the day after tomorrow,nächste Woche=next week,"
    "nächsten Monat=next month,nächstes Jahr=next year,heute Abend=this evening,bald=soon",
}
WHEN = {
    kind: tuple((de, en) for de, en in (item.split("=") for item in items.split(",")))
    for kind, items in _WHEN.items()
}


def when(d: Draw, kind: str) -> Pair:
    """An adverbial of time: past, now, habit or future."""
    r = d.below(8)
    if kind in ("past", "future"):
        if r == 0:
            return duration(d, "vor" if kind == "past" else "in")
        if r == 1:
            return date(d)
        if r == 2:
            return on_weekday(d)
    if kind == "habit" and r == 0:
        de, en = d.pick(cldr.weekdays())
        return f"jeden {de}", f"every {en}"
    return d.pick(WHEN[kind])


_DURATIONS = {"minute": 60, "hour": 24, "day": 30, "week": 30, "month": 30, "year": 60}
_AMOUNTS = [f"{n} {unit}" for unit in sorted(_DURATIONS) for n in range(1, _DURATIONS[unit])]
_LONG_AMOUNTS = [a for a in _AMOUNTS if a.endswith(("week", "month", "year"))]


def duration(d: Draw, preposition: str) -> Pair:
    """A span of time in the dative: *vor* (ago), *in*, *seit* (for)."""
    amounts = _LONG_AMOUNTS if preposition == "seit" else _AMOUNTS
    (amount,) = d.fact(f"duration {preposition}", amounts)
    n, unit = amount.split(" ")
    de, en = cldr.quantity(int(n), f"duration-{unit}", "dat")
    de = f"{preposition} {de}"
    match preposition:
        case "vor":
            return de, f"{en} ago"
        case "seit":
            return de, f"for {en}"
    return de, f"in {en}"


def date(d: Draw) -> Pair:
    """*am dritten Mai*, *on the third of May*."""
    day, month = d.fact("date", DAYS, MONTHS)
    return on_date(int(day), int(month))


def on_date(day: int, month: int) -> Pair:
    """The date phrase of a day from 1 and a month from 0."""
    de, en = cldr.months()[month]
    return f"am {german.ordinal(day, 'en')} {de}", f"on the {english.ordinal(day)} of {en}"


DAYS, MONTHS = [str(n) for n in range(1, 29)], [str(n) for n in range(12)]
WEEKDAYS = [str(n) for n in range(7)]
HOURS, MINUTES = [str(n) for n in range(1, 13)], [str(n) for n in range(0, 60, 5)]


def on_weekday(d: Draw) -> Pair:
    """*am Montag*, *on Monday*, sometimes with a part of the day."""
    de, en = d.pick(cldr.weekdays())
    if d.chance(1):
        part = d.pick([("abend", "evening"), ("morgen", "morning"), ("nachmittag", "afternoon")])
        return f"am {de}{part[0]}", f"on {en} {part[1]}"
    return f"am {de}", f"on {en}"


def at_time(d: Draw) -> Pair:
    """*am Montag um halb acht*, *at half past seven on Monday*."""
    weekday, hour, minute = d.fact("clock", WEEKDAYS, HOURS, MINUTES)
    de, en = cldr.weekdays()[int(weekday)]
    h, m = int(hour), int(minute)
    return f"am {de} um {german.clock(h, m)}", f"at {english.clock(h, m)} on {en}"


CITIES = {de: en for de, en in (pair.split("=") for pair in words.CITIES.split())}
PLACES = sorted([*cldr.territories(), *CITIES])


def journey(d: Draw, kind: str, who: str = "any") -> tuple[NounPhrase, cldr.Place]:
    """Somebody, and a territory or city, as one fact."""
    key, where = d.fact(kind, lexicon.subjects(who), PLACES)
    return person(d, key), place(where)


def place(key: str) -> cldr.Place:
    """A territory by its code, or a city by its German name."""
    if key in CITIES:
        return cldr.Place(f"in {key}", f"nach {key}", f"aus {key}", CITIES[key])
    return cldr.territories()[key]


def site(word: str) -> tuple[str, str, str, str]:
    """A building or the like: German and English where, German and English whither."""
    noun, (de, en) = lexicon.places()[word]
    np = noun_phrase(noun)
    where = german.contract(de, np.dat)
    whither = german.contract("in", np.acc) if de == "in" else german.contract("zu", np.dat)
    return where, f"{en} {np.en}", whither, f"to {np.en}"


@cache
def amount(noun: Noun, n: int) -> NounPhrase:
    """``n`` of something as a noun phrase: *ein Hund*, *drei Hunde*."""
    if n == 1:
        return noun_phrase(noun, ("ein", ""))
    return noun_phrase(noun, (german.number(n), english.number(n)), plural=True)


def words_of(label: str) -> list[str]:
    """The nouns of a class as a column for ``Draw.fact``."""
    return sorted(lexicon.nouns()[label])


def known(d: Draw, label: str, word: str) -> NounPhrase:
    """A definite singular, sometimes with an adjective."""
    adjective = d.pick(lexicon.adjectives(label)) if d.chance(1) else None
    noun = lexicon.nouns()[label][word]
    return noun_phrase(noun, d.pick(["der", "der", "dieser"]), adjective, human=label == "person")
