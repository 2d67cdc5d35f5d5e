"""English inflection: articles, plurals, verb forms, possessives, numbers and clock times.

British usage, to agree with the numbers of num2words ("one hundred and one").  Covers exactly
the words of ``words.py``; a multi-word verb ("pick up") inflects its first word.
"""

from __future__ import annotations

from functools import cache

from num2words import num2words

_PLURALS = {
    "man": "men", "woman": "women", "fisherman": "fishermen", "child": "children",
    "sheep": "sheep", "fish": "fish", "mouse": "mice", "goose": "geese", "wolf": "wolves",
    "knife": "knives", "shelf": "shelves", "potato": "potatoes", "tomato": "tomatoes",
}  # fmt: skip
_PAST = {
    "be": ("was", "been"), "have": ("had", "had"), "do": ("did", "done"),
    "begin": ("began", "begun"), "break": ("broke", "broken"), "bring": ("brought", "brought"),
    "build": ("built", "built"), "buy": ("bought", "bought"), "catch": ("caught", "caught"),
    "come": ("came", "come"), "draw": ("drew", "drawn"), "eat": ("ate", "eaten"),
    "fall": ("fell", "fallen"), "feed": ("fed", "fed"), "find": ("found", "found"),
    "fly": ("flew", "flown"), "forget": ("forgot", "forgotten"), "get": ("got", "got"),
    "give": ("gave", "given"), "go": ("went", "gone"), "hang": ("hung", "hung"),
    "hide": ("hid", "hidden"), "know": ("knew", "known"), "leave": ("left", "left"),
    "lend": ("lent", "lent"), "lose": ("lost", "lost"), "meet": ("met", "met"),
    "put": ("put", "put"), "read": ("read", "read"), "run": ("ran", "run"),
    "see": ("saw", "seen"),
    "sell": ("sold", "sold"), "send": ("sent", "sent"), "show": ("showed", "shown"),
    "sing": ("sang", "sung"), "sleep": ("slept", "slept"), "speak": ("spoke", "spoken"),
    "swim": ("swam", "swum"), "take": ("took", "taken"), "think": ("thought", "thought"),
    "throw": ("threw", "thrown"), "understand": ("understood", "understood"),
    "wake": ("woke", "woken"), "wear": ("wore", "worn"), "write": ("wrote", "written"),
}  # fmt: skip
_DOUBLED = {"begin", "cancel", "forget", "get", "plan", "put", "run", "swim", "travel"}
_VOWEL_LETTER_CONSONANT_SOUND = ("uni", "use", "euro", "one")
_BE = {"1s": "am", "2s": "are", "3s": "is", "1p": "are", "3p": "are"}


def article(phrase: str) -> str:
    """``phrase`` with *a* or *an* before it, by the sound of its first word."""
    vowel = phrase[0] in "aeiou" and not phrase.startswith(_VOWEL_LETTER_CONSONANT_SOUND)
    return ("an " if vowel or phrase.startswith(("hour", "honest")) else "a ") + phrase


def plural(word: str) -> str:
    """The plural of a noun; of several words, the last one changes."""
    *before, last = word.split(" ")
    if last in _PLURALS:
        last = _PLURALS[last]
    elif last.endswith(("s", "x", "ch", "sh")):
        last += "es"
    elif last.endswith("y") and last[-2] not in "aeiou":
        last = last[:-1] + "ies"
    else:
        last += "s"
    return " ".join([*before, last])


def possessive(phrase: str) -> str:
    """The possessive of a singular: *the doctor's*, *the witness's*, *Tobias's*."""
    return phrase + "'s"


def verb(phrase: str, form: str) -> str:
    """``phrase`` as base, third (person), past, participle or ing; its first word inflects."""
    word, _, rest = phrase.partition(" ")
    return f"{_inflect(word, form)} {rest}".strip()


def _inflect(word: str, form: str) -> str:
    consonant_y = word.endswith("y") and word[-2] not in "aeiou"
    if form == "base":
        return word
    if form == "third":
        if word in ("be", "have"):
            return {"be": "is", "have": "has"}[word]
        if consonant_y:
            return word[:-1] + "ies"
        return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o", "z")) else "s")
    if form in ("past", "participle") and word in _PAST:
        return _PAST[word][form == "participle"]
    stem = word + word[-1] if word in _DOUBLED else word
    if form == "ing":
        if word == "lie":
            return "lying"
        silent_e = word.endswith("e") and not word.endswith(("be", "ee"))
        return (word[:-1] if silent_e else stem) + "ing"
    if consonant_y:
        return word[:-1] + "ied"
    return stem + ("d" if word.endswith("e") else "ed")


def be(person: str, past: bool = False) -> str:
    """The present or past of *be*."""
    if past:
        return "was" if person in ("1s", "3s") else "were"
    return _BE[person]


def have(person: str) -> str:
    """The present of *have*."""
    return "has" if person == "3s" else "have"


def do(person: str, past: bool = False) -> str:
    """The present or past of the auxiliary *do*."""
    return "did" if past else "does" if person == "3s" else "do"


def finite(phrase: str, tense: str, person: str) -> str:
    """A verb phrase in present, progressive, was_doing, past, perfect, pluperfect or future."""
    match tense:
        case "present":
            return verb(phrase, "third" if person == "3s" else "base")
        case "progressive":
            return f"{be(person)} {verb(phrase, 'ing')}"
        case "was_doing":
            return f"{be(person, past=True)} {verb(phrase, 'ing')}"
        case "past":
            return verb(phrase, "past")
        case "perfect":
            return f"{have(person)} {verb(phrase, 'participle')}"
        case "pluperfect":
            return f"had {verb(phrase, 'participle')}"
        case "future":
            return f"will {phrase}"
    raise ValueError(f"no such tense: {tense}")


@cache
def number(n: int) -> str:
    """A cardinal in words, without commas."""
    return str(num2words(n, lang="en")).replace(",", "")


def year(n: int) -> str:
    """A year as it is read: *nineteen ninety-seven*."""
    return str(num2words(n, lang="en", to="year"))


@cache
def ordinal(n: int) -> str:
    """An ordinal in words."""
    return str(num2words(n, lang="en", to="ordinal"))


def clock(hour: int, minute: int) -> str:
    """A time of day on the twelve-hour clock, in steps of five minutes."""
    if minute == 0:
        return f"{number(hour)} o'clock"
    if minute == 30:
        return f"half past {number(hour)}"
    amount = number(min(minute, 60 - minute)) if minute not in (15, 45) else "a quarter"
    if minute < 30:
        return f"{amount} past {number(hour)}"
    return f"{amount} to {number(hour % 12 + 1)}"
