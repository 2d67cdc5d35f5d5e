"""Sentences about how things are: sizes, prices, places, owners, comparisons, gifts."""

from __future__ import annotations

from functools import cache

from lnexp.data.verbalized import cldr, english, german, lexicon, scenes, words
from lnexp.data.verbalized.facts import Draw
from lnexp.data.verbalized.phrases import clause, noun_phrase
from lnexp.data.verbalized.scenes import strings

Pair = tuple[str, str]


@cache
def _adults() -> list[str]:
    return [key for key in lexicon.subjects() if key not in ("der Junge", "die Kinder")]


def age(d: Draw) -> Pair:
    """*ist einundzwanzig Jahre alt*."""
    key, n = d.fact("age", _adults(), strings(range(20, 100)))
    who, (de, en) = scenes.person(d, key), cldr.quantity(int(n), "duration-year")
    return (
        f"{who.nom} {german.auxiliary('sein', who.person)} {de} alt",
        f"{who.en} {english.be(who.person)} {en} old",
    )


def price(d: Draw) -> Pair:
    """*kostet einundzwanzig Euro*."""
    label = d.pick(("thing", "clothes", "machine", "animal", "food"))
    most = 30 if label == "food" else 900
    currencies = ["EUR", "EUR", "EUR", "USD", "CHF"]
    word, n, currency, key = d.fact(
        "price", scenes.words_of(label), strings(range(1, most)), currencies, lexicon.subjects()
    )
    np, (de, en) = scenes.known(d, label, word), cldr.price(int(n), currency)
    if d.chance(2):
        return f"{np.nom} kostet {de}", f"{np.en} costs {en}"
    who = scenes.person(d, key)
    have = german.auxiliary("haben", who.person)
    return (
        f"{who.nom} {have} {de} für {np.acc} bezahlt",
        f"{who.en} paid {en} for {np.en}",
    )


_SIZES = (
    ("building", "meter", ("hoch", "high"), 150), ("building", "meter", ("lang", "long"), 400),
    ("building", "meter", ("breit", "wide"), 200), ("room", "meter", ("lang", "long"), 20),
    ("room", "meter", ("breit", "wide"), 15), ("clothes", "centimeter", ("lang", "long"), 150),
    ("thing", "centimeter", ("breit", "wide"), 200), ("thing", "centimeter", ("hoch", "high"), 200),
)  # fmt: skip


def size(d: Draw) -> Pair:
    """*ist einundzwanzig Meter hoch*."""
    label, unit, (de_how, en_how), most = d.pick(_SIZES)
    word, n, _ = d.fact("size", scenes.words_of(label), strings(range(1, most)), [en_how])
    np, (de, en) = scenes.known(d, label, word), cldr.quantity(int(n), f"length-{unit}", "acc")
    return f"{np.nom} ist {de} {de_how}", f"{np.en} is {en} {en_how}"


_WEIGHTS = (
    ("animal", "kilogram", 400), ("machine", "kilogram", 60),
    ("thing", "gram", 900), ("food", "gram", 900),
)  # fmt: skip


def weight(d: Draw) -> Pair:
    """*wiegt einundzwanzig Kilogramm*."""
    label, unit, most = d.pick(_WEIGHTS)
    word, n = d.fact("weight", scenes.words_of(label), strings(range(2, most)))
    np, (de, en) = scenes.known(d, label, word), cldr.quantity(int(n), f"mass-{unit}", "acc")
    return f"{np.nom} wiegt {de}", f"{np.en} weighs {en}"


@cache
def _comparisons() -> list[str]:
    """``adjective line;noun class;noun;another noun``."""
    return sorted(
        f"{line};{label};{a};{b}"
        for line in words.COMPARED.strip().splitlines()
        for label in line.split()[4:]
        for a in lexicon.nouns()[label]
        for b in lexicon.nouns()[label]
        if lexicon.nouns()[label][a].english != lexicon.nouns()[label][b].english
    )


def comparison(d: Draw) -> Pair:
    """*älter als*, *so alt wie*."""
    (fact,) = d.fact("comparison", _comparisons())
    line, label, first, second = fact.split(";")
    de, de_more, en, en_more = (part.replace("_", " ") for part in line.split()[:4])
    a, b = (noun_phrase(lexicon.nouns()[label][word]) for word in (first, second))
    if d.chance(2):
        return f"{a.nom} ist {de_more} als {b.nom}", f"{a.en} is {en_more} than {b.en}"
    if d.chance(2):
        return f"{a.nom} ist so {de} wie {b.nom}", f"{a.en} is as {en} as {b.en}"
    return f"{a.nom} ist nicht so {de} wie {b.nom}", f"{a.en} is not as {en} as {b.en}"


def owner(d: Draw) -> Pair:
    """The genitive: *Das Auto des Lehrers ist rot.*."""
    label = d.pick(("thing", "clothes", "machine", "animal"))
    key, word = d.fact("owner", lexicon.subjects("single"), scenes.words_of(label))
    who, noun = scenes.person(d, key), lexicon.nouns()[label][word]
    de_adj, en_adj = d.pick(lexicon.adjectives(label))
    en = f"{english.possessive(who.en)} {noun.english} is {en_adj}"
    if key in lexicon.names():
        return f"{who.gen} {noun.singular} ist {de_adj}", en
    return f"{noun_phrase(noun).nom} {who.gen} ist {de_adj}", en


def belongs(d: Draw) -> Pair:
    """*gehört* and *gefällt* with a dative; English turns the second one round."""
    label = d.pick(("thing", "clothes", "machine", "animal", "building"))
    key, word = d.fact("belongs", lexicon.subjects(), scenes.words_of(label))
    who, np = scenes.person(d, key), scenes.known(d, label, word)
    if d.chance(2):
        return f"{np.nom} gehört {who.dat}", f"{np.en} belongs to {who.en_object}"
    like = "likes" if who.person == "3s" else "like"
    return f"{np.nom} gefällt {who.dat}", f"{who.en} {like} {np.en}"


def has(d: Draw) -> Pair:
    """*hat drei Hunde und eine Katze*; *hat keinen Hund*."""
    label = d.pick(("animal", "clothes", "machine", "thing"))
    key, first, second, n = d.fact(
        "has", lexicon.subjects(), *[scenes.words_of(label)] * 2, strings(range(2, 40))
    )
    who = scenes.person(d, key)
    have = german.auxiliary("haben", who.person)
    a, b = (lexicon.nouns()[label][word] for word in (first, second))
    if d.chance(1) or first == second:
        none = noun_phrase(a, "kein", plural=d.chance(2))
        do = english.do(who.person)
        bare = none.en.removeprefix("no ")
        some = f"any {bare}" if none.person == "3p" else english.article(bare)
        return f"{who.nom} {have} {none.acc}", f"{who.en} {do} not have {some}"
    many, one = scenes.amount(a, int(n)), noun_phrase(b, "ein")
    en = f"{who.en} {english.have(who.person)} {many.en} and {one.en}"
    return f"{who.nom} {have} {many.acc} und {one.acc}", en


_REFLEXIVE = (
    ("freuen", "auf", "look forward to", "event"), ("erinnern", "an", "remember", "event"),
    ("interessieren", "für", "", "text"), ("kümmern", "um", "look after", "animal"),
    ("fürchten", "vor", "", "animal"),
)  # fmt: skip


def reflexive(d: Draw) -> Pair:
    """*freut sich auf*, *is looking forward to*."""
    verb, preposition, en_verb, label = d.pick(_REFLEXIVE)
    key, word, _ = d.fact("reflexive", lexicon.subjects(), scenes.words_of(label), [verb])
    who, np = scenes.person(d, key), scenes.known(d, label, word)
    itself = who.acc if who.person in ("1s", "2s", "1p") else "sich"
    form = np.dat if preposition == "vor" else np.acc
    sentence = clause(who, lexicon.verb(verb), "present", f"{itself} {preposition} {form}").main()
    be = english.be(who.person)
    match verb:
        case "interessieren":
            return sentence, f"{who.en} {be} interested in {np.en}"
        case "fürchten":
            return sentence, f"{who.en} {be} afraid of {np.en}"
        case "freuen":
            return sentence, f"{who.en} {be} looking forward to {np.en}"
    return sentence, f"{who.en} {english.finite(en_verb, 'present', who.person)} {np.en}"


def gladly(d: Draw) -> Pair:
    """*singt gern*, *likes to sing*; *nicht gern*, *does not like to*."""
    deed = scenes.deed(d, active=True, definite=True)
    who = deed.subject
    if d.chance(2):
        like = "likes" if who.person == "3s" else "like"
        return deed.german("present", after="gern").main(), f"{who.en} {like} to {deed.en_rest()}"
    do = english.do(who.person)
    return (
        deed.german("present", after="nicht gern").main(),
        f"{who.en} {do} not like to {deed.en_rest()}",
    )


RELATIONS = (age, price, size, weight, comparison, owner, belongs, has, reflexive, gladly)
