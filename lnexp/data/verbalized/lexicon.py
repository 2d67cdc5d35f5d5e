"""The vocabulary tables, parsed: nouns, adjectives, verbs, places, and who can act."""

from __future__ import annotations

from functools import cache

from lnexp.data.verbalized import german, verbs, words
from lnexp.data.verbalized import nouns as noun_tables
from lnexp.data.verbalized.phrases import Noun

Pair = tuple[str, str]


def _lines(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


def nouns_of(table: str) -> list[Noun]:
    """Parse noun lines."""
    rows = [line.split()[:4] for line in _lines(table)]
    return [Noun(g, de, plural, en.replace("_", " ")) for g, de, plural, en in rows]


@cache
def nouns() -> dict[str, dict[str, Noun]]:
    """Class of nouns -> German singular -> noun."""
    classes: dict[str, dict[str, Noun]] = {}
    known: dict[str, Noun] = {}
    for label, table in noun_tables.NOUNS.items():
        if table.startswith("+"):
            classes[label] = {word: known[word] for word in table.split()[1:]}
        else:
            classes[label] = {noun.singular: noun for noun in nouns_of(table)}
            known |= classes[label]
    return classes


@cache
def pairs_of(text: str) -> list[Pair]:
    """Parse ``German English,German English``."""
    return [(de, en) for de, en in (item.split(" ", 1) for item in text.split(","))]


def adjective_label(label: str) -> str:
    """The class of nouns whose adjectives ``label`` shares."""
    return words.ADJECTIVE_CLASS.get(label, label)


def adjectives(label: str) -> list[Pair]:
    """The adjectives that go with a class of nouns."""
    return pairs_of(words.ADJECTIVES[adjective_label(label)])


@cache
def _irregular() -> dict[str, tuple[str, str, str]]:
    rows = (line.split() for line in _lines(verbs.IRREGULAR))
    return {word: (third, past, participle) for word, third, past, participle in rows}


@cache
def _verb(word: str, sein: bool) -> german.Verb:
    return german.conjugate(word, _irregular(), sein)


def verb(word: str) -> german.Verb:
    """Conjugate a verb that forms its perfect with *haben*, or with *sein* if marked ``*``."""
    return _verb(word.rstrip("*"), word.endswith("*"))


@cache
def names() -> list[str]:
    """All first names."""
    return sorted([*words.FEMALE.split(), *words.MALE.split()])


@cache
def options(table: str, active: bool = False, named: bool = True) -> list[str]:
    """``German;English;noun class;noun`` for every verb and noun of ``table`` that go together.

    ``active`` leaves out the verbs marked ``~``; not ``named``, first names and
    relatives as objects.
    """
    found = []
    for line in _lines(table):
        de, en, *labels = line.split()
        if active and "~" in en:
            continue
        pair = f"{de}{'*' * ('*' in en)};{en.rstrip('~*').replace('_', ' ')}"
        for label in labels:
            found += [f"{pair};{label};{noun}" for noun in nouns()[label]]
        if named and "person" in labels:
            found += [f"{pair};name;{who}" for who in names()]
            found += [f"{pair};family;{noun}" for noun in family()]
        if not labels:
            found.append(f"{pair};;")
    return sorted(found)


@cache
def places() -> dict[str, tuple[Noun, Pair]]:
    """German singular -> noun, and the prepositions of place in German and English."""
    rows = [line.split() for line in _lines(verbs.PLACES)]
    return {r[1]: (Noun(r[0], r[1], r[2], r[4].replace("_", " ")), (r[3], r[5])) for r in rows}


@cache
def family() -> dict[str, Noun]:
    """German singular -> relative."""
    return {noun.singular: noun for noun in nouns_of(words.FAMILY)}


@cache
def furniture() -> dict[str, Noun]:
    """German singular -> piece of furniture."""
    return {noun.singular: noun for noun in nouns_of(verbs.FURNITURE)}


_PRONOUN_WEIGHT = 6


@cache
def subjects(kind: str = "any") -> list[str]:
    """Keys of everybody who can act: any, third (not I, you, we), or single (and no pronoun)."""
    single = [*names(), *("der " + n for n in nouns()["person"]), *("mein " + n for n in family())]
    third = [*single, *["die Kinder"] * 3, *("die " + n for n in sorted(nouns()["person"])[::4])]
    match kind:
        case "single":
            return sorted(single)
        case "third":
            return sorted(third)
    return sorted(third + _PRONOUN_WEIGHT * ["ich", "du", "wir", "er", "sie"])
