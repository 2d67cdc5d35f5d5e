"""Names from the Unicode CLDR, by way of Babel: territories, languages, calendar, units, money.

CLDR gives names without grammar; the articles and the few irregular cases are stated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from babel import Locale
from babel.dates import get_day_names, get_month_names
from babel.numbers import get_currency_name
from babel.units import format_unit

from lnexp.data.verbalized import german
from lnexp.data.verbalized.english import number as english_number

_GERMAN, _ENGLISH = Locale("de"), Locale("en", "GB")

# Territories that German uses without an article and with "in".
_PLAIN = (
    "AF AL AM AO AR AT AU AZ BD BE BG BO BR BT BW BY CA CL CM CN CO CR CZ DE DK DZ EC EE EG ER ES "
    "ET FI FR GE GH GR GT GY HN HR HU ID IE IL IN IS IT JO JP KE KG KH KP KR KW KZ LA LI LR LS LT "
    "LU LV LY MA MC ME MK ML MR MW MX MY MZ NA NG NI NO NP NZ OM PA PE PK PL PT PY QA RO RS RU RW "
    "SA SE SG SI SM SO SY TG TH TJ TM TN TW TZ UG UY UZ VE VN ZA ZM ZW"
)
# Those with an article, by the gender of their name (p: plural).
_ARTICLE = {
    "CH": "f", "TR": "f", "UA": "f", "SK": "f", "MN": "f", "DO": "f", "CF": "f",
    "IQ": "m", "IR": "m", "LB": "m", "NE": "m", "SD": "m", "SN": "m", "TD": "m", "XK": "m",
    "YE": "m",
    "NL": "p", "US": "p", "PH": "p", "MV": "p", "BS": "p", "AE": "p",
}  # fmt: skip
_ISLANDS = ("CU", "CY", "JM", "MG", "MT")  # "auf Malta"
_ARCHIPELAGOES = ("BS", "MV", "PH")  # "auf den Malediven"
_ENGLISH_ARTICLE = ("AE", "BS", "CF", "DO", "MV", "NL", "PH", "US")
_LANGUAGES = (
    "ar bg ca cs da de el en es et eu fa fi fr ga he hi hr hu hy is it ja ka ko lt lv mk mn mt "
    "nl no pl pt ro ru sk sl sq sr sv sw ta th tr uk vi zh"
)
_MEASURED = ("gram", "kilogram", "tonne")


@dataclass(frozen=True)
class Place:
    """A country or city in the three German phrases that differ, and in English."""

    where: str
    whither: str
    whence: str
    english: str


def _territory(code: str) -> Place:
    name = _GERMAN.territories[code]
    english = _ENGLISH.territories[code].replace("&", "and")
    if code in _ENGLISH_ARTICLE:
        english = "the " + english
    gender = _ARTICLE.get(code)
    if gender is None:
        where = f"{'auf' if code in _ISLANDS else 'in'} {name}"
        return Place(where, f"nach {name}", f"aus {name}", english)

    def declined(case: str) -> str:
        # The adjectives of "Vereinigte Staaten" take -n, except in nominative-like singulars.
        weak_n = gender == "p" or case == "dat"
        *adjectives, noun = name.split(" ")
        words = [a + "n" if weak_n and a.endswith("e") else a for a in adjectives]
        noun = german.dative_plural(noun) if gender == "p" and case == "dat" else noun
        return " ".join([german.determiner("der", gender, case), *words, noun])

    if code in _ARCHIPELAGOES:
        there = declined("dat")
        return Place(f"auf {there}", f"auf {declined('acc')}", f"von {there}", english)
    where = german.contract("in", declined("dat"))
    return Place(where, f"in {declined('acc')}", f"aus {declined('dat')}", english)


@cache
def territories() -> dict[str, Place]:
    """The territories used, by ISO 3166 code."""
    return {code: _territory(code) for code in sorted([*_PLAIN.split(), *_ARTICLE, *_ISLANDS])}


@cache
def languages() -> dict[str, tuple[str, str]]:
    """German and English name of each language used, by ISO 639 code."""
    return {c: (_GERMAN.languages[c], _ENGLISH.languages[c]) for c in sorted(_LANGUAGES.split())}


@cache
def months() -> list[tuple[str, str]]:
    """German and English names, January first."""
    de, en = (get_month_names("wide", locale=loc) for loc in (_GERMAN, _ENGLISH))
    return [(de[m], en[m]) for m in range(1, 13)]


@cache
def weekdays() -> list[tuple[str, str]]:
    """German and English names, Monday first."""
    de, en = (get_day_names("wide", locale=loc) for loc in (_GERMAN, _ENGLISH))
    return [(de[d], en[d]) for d in range(7)]


@cache
def _unit_name(unit: str, n: int, locale: Locale) -> str:
    text: str = format_unit(1 if n == 1 else 2, unit, "long", locale=locale)
    return text.replace("\xa0", " ").split(" ", 1)[1]


def quantity(n: int, unit: str, case: str = "nom") -> tuple[str, str]:
    """``n`` of a CLDR unit in words: *einundzwanzig Kilometer*, *in zwei Jahren* (dative)."""
    name = _unit_name(unit, n, _GERMAN)
    english = f"{english_number(n)} {_unit_name(unit, n, _ENGLISH)}"
    if n == 1:
        return f"{german.determiner('ein', _unit_gender(unit), case)} {name}", english
    if case == "dat" and not unit.endswith(_MEASURED):
        name = german.dative_plural(name)
    return f"{german.number(n)} {name}", english


def _unit_gender(unit: str) -> str:
    short = unit.rpartition("-")[2]
    if short in ("hour", "minute", "second", "week", "tonne", "mile"):
        return "f"
    return "n" if short in ("year", "gram", "kilogram") else "m"


def price(n: int, currency: str) -> tuple[str, str]:
    """An amount of money in words; German money is masculine here and does not inflect."""
    de = get_currency_name(currency, count=n, locale=_GERMAN)
    en = get_currency_name(currency, count=n, locale=_ENGLISH)
    return f"{'einen' if n == 1 else german.number(n)} {de}", f"{english_number(n)} {en}"
