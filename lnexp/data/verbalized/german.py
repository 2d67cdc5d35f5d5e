"""German inflection: determiners, adjectives, nouns, verbs, numbers and clock times.

Covers exactly the words of ``words.py``; nothing here knows English or draws at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from num2words import num2words

CASES = ("nom", "acc", "dat", "gen")
# Rows are cases; columns are masculine, feminine, neuter, plural.
_DER = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "den"),
    "gen": ("des", "der", "des", "der"),
}
_DIESER = {
    "nom": ("er", "e", "es", "e"),
    "acc": ("en", "e", "es", "e"),
    "dat": ("em", "er", "em", "en"),
    "gen": ("es", "er", "es", "er"),
}
_EIN = _DIESER | {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e")}
_WEAK = {
    "nom": ("e", "e", "e", "en"),
    "acc": ("en", "e", "e", "en"),
    "dat": ("en",) * 4,
    "gen": ("en",) * 4,
}
_MIXED = _WEAK | {"nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en")}
_STRONG = _DIESER | {"gen": ("en", "er", "en", "er")}

_CONTRACTED = {
    "in dem": "im", "an dem": "am", "zu dem": "zum", "zu der": "zur", "von dem": "vom",
    "in das": "ins", "an das": "ans", "bei dem": "beim",
}  # fmt: skip


def determiner(word: str, gender: str, case: str) -> str:
    """The form of ``der``, ``dieser``, or of ``ein`` and the words declined like it; "" stays."""
    column = "mfnp".index(gender)
    if word == "der":
        return _DER[case][column]
    if word == "dieser":
        return "dies" + _DIESER[case][column]
    return word and word + _EIN[case][column]


def adjective(word: str, det: str, gender: str, case: str) -> str:
    """``word`` before a noun and after the determiner ``det`` ("" is the strong declension)."""
    table = _WEAK if det in ("der", "dieser") else _MIXED if det else _STRONG
    stem = {"hoch": "hoh", "teuer": "teur"}.get(word, word.removesuffix("e"))
    if stem.endswith("el"):
        stem = stem[:-2] + "l"
    return stem + table[case]["mfnp".index(gender)]


def dative_plural(plural: str) -> str:
    """Add the *-n* of the dative plural to a nominative one: Tage, Tagen; Autos, Autos."""
    return plural if plural.endswith(("n", "s")) else plural + "n"


def noun(word: str, plural: str, gender: str, case: str) -> str:
    """A noun in ``case``; ``gender`` is m, f, n, p (plural), or w (masculine, like Student)."""
    if gender == "p":
        return dative_plural(plural) if case == "dat" else plural
    if gender == "w":
        return word if case == "nom" else plural
    if gender == "f" or case != "gen":
        return word
    one_syllable = len(_vowel_runs(word)) == 1 and not word.endswith(("e", "Schal"))
    sibilant = word.endswith(("s", "ß", "x", "z", "sch"))
    return word + ("es" if one_syllable or sibilant else "s")


def _vowel_runs(word: str) -> list[str]:
    spaced = "".join(c if c in "aeiouyäöü" else " " for c in word.lower())
    return spaced.split()


def contract(preposition: str, phrase: str) -> str:
    """Join a preposition to a phrase, as *in dem Park* becomes *im Park*."""
    first, _, rest = phrase.partition(" ")
    joined = f"{preposition} {first}"
    return f"{_CONTRACTED.get(joined, joined)} {rest}".strip()


PERSONS = ("1s", "2s", "3s", "1p", "3p")
_FULL = {
    "sein": ("bin bist ist sind sind", "war warst war waren waren"),
    "haben": ("habe hast hat haben haben", "hatte hattest hatte hatten hatten"),
    "werden": ("werde wirst wird werden werden", "wurde wurdest wurde wurden wurden"),
    "können": ("kann kannst kann können können", "konnte konntest konnte konnten konnten"),
    "müssen": ("muss musst muss müssen müssen", "musste musstest musste mussten mussten"),
    "wollen": ("will willst will wollen wollen", "wollte wolltest wollte wollten wollten"),
    "sollen": ("soll sollst soll sollen sollen", "sollte solltest sollte sollten sollten"),
    "dürfen": ("darf darfst darf dürfen dürfen", "durfte durftest durfte durften durften"),
    "möchten": ("möchte möchtest möchte möchten möchten",) * 2,
}


def auxiliary(word: str, person: str, past: bool = False) -> str:
    """The present or past of *sein*, *haben*, *werden* or a modal verb."""
    return _FULL[word][past].split()[PERSONS.index(person)]


@dataclass(frozen=True)
class Verb:
    """A verb by its principal parts: *an*, *rufen*, *ruft*, *rief*, *angerufen*."""

    prefix: str
    base: str
    third: str
    past: str
    participle: str
    sein: bool

    @property
    def infinitive(self) -> str:
        """*anrufen*."""
        return self.prefix + self.base

    @property
    def zu(self) -> str:
        """*anzurufen*, *zu kaufen*."""
        return f"{self.prefix}zu{self.base}" if self.prefix else f"zu {self.base}"

    def present(self, person: str) -> str:
        """The finite present without its separable prefix."""
        if person in ("1p", "3p"):
            return self.base
        if person == "3s":
            return self.third
        if person == "1s":
            stem = self.base[:-2] if self.base.endswith("en") else self.base[:-1]
            return (stem[:-2] + "l" if stem.endswith("el") else stem) + "e"
        if self.third.endswith(("hält", "tritt")):
            return self.third + "st"
        stem = self.third.removesuffix("t")
        return stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else "st")

    def preterite(self, person: str) -> str:
        """The finite simple past without its separable prefix."""
        if person in ("1p", "3p"):
            return self.past + ("n" if self.past.endswith("e") else "en")
        if person == "2s":
            sibilant = self.past.endswith(("s", "ß", "z"))
            return self.past + ("est" if sibilant else "st")
        return self.past


def conjugate(word: str, irregular: dict[str, tuple[str, str, str]], sein: bool) -> Verb:
    """Principal parts of ``word`` (*an|rufen*), from ``irregular`` or by the weak rule."""
    prefix, _, base = word.rpartition("|")
    inseparable = base.startswith(("be", "ver", "er", "zer", "ent", "wider", "über", "wieder"))
    bare = base.endswith("ieren") or (inseparable and base != "beten")
    if base in irregular:
        third, past, participle = irregular[base]
    else:
        stem = base[:-2] if base.endswith("en") else base[:-1]
        e = "e" if stem.endswith(("t", "d", "chn", "ffn", "gn")) else ""
        third, past = f"{stem}{e}t", f"{stem}{e}te"
        participle = f"{'' if bare else 'ge'}{stem}{e}t"
    return Verb(prefix, base, third, past, prefix + participle, sein)


@cache
def number(n: int) -> str:
    """A cardinal in words; one is *eins*, as in counting."""
    words = str(num2words(n, lang="de"))
    return words.removeprefix("ein") if 100 <= n < 200 else words


def year(n: int) -> str:
    """A year as it is read: *neunzehnhundertsiebenundneunzig*."""
    return str(num2words(n, lang="de", to="year"))


@cache
def ordinal(n: int, ending: str = "e") -> str:
    """An ordinal with its adjective ending: *der dritte* (e), *am dritten* (en)."""
    return str(num2words(n, lang="de", to="ordinal")).removesuffix("e") + ending


def clock(hour: int, minute: int) -> str:
    """A time of day on the twelve-hour clock, in steps of five minutes: *halb acht* is 7:30."""
    following = number(hour % 12 + 1)
    if minute == 0:
        return ("ein" if hour == 1 else number(hour)) + " Uhr"
    if minute == 30:
        return f"halb {following}"
    if minute in (25, 35):
        return f"fünf {'vor' if minute == 25 else 'nach'} halb {following}"
    amount = {15: "Viertel", 45: "Viertel"}.get(minute) or number(min(minute, 60 - minute))
    return f"{amount} nach {number(hour)}" if minute < 30 else f"{amount} vor {following}"
