"""Noun phrases and clauses in both languages at once, before a sentence puts them in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from lnexp.data.verbalized import english, german

_POSSESSIVE = {"1s": ("mein", "my"), "2s": ("dein", "your"), "1p": ("unser", "our")}
_ENGLISH_DETERMINER = {
    "der": "the", "dieser": "this", "kein": "no", "mein": "my", "dein": "your", "sein": "his",
    "unser": "our",
}  # fmt: skip


@dataclass(frozen=True)
class Noun:
    """A dictionary entry; gender m, f, n, or w (weak masculine)."""

    gender: str
    singular: str
    plural: str
    english: str


@dataclass(frozen=True)
class NounPhrase:
    """Four German cases and the English subject and object forms."""

    nom: str
    acc: str
    dat: str
    gen: str
    en: str
    en_object: str
    person: str
    gender: str
    human: bool = True

    def pronoun(self) -> NounPhrase:
        """The pronoun that refers back to this phrase."""
        if self.person == "3p":
            return PRONOUNS["sie pl"]
        if self.person != "3s":
            return self
        he = PRONOUNS[{"m": "er", "f": "sie", "n": "es"}[self.gender]]
        return he if self.human else replace(he, en="it", en_object="it")

    def possessive(self) -> tuple[str, str]:
        """German stem and English word: *ihr*, *her*."""
        if self.person in _POSSESSIVE:
            return _POSSESSIVE[self.person]
        if self.person == "3p":
            return "ihr", "their"
        if self.gender == "f":
            return "ihr", "her" if self.human else "its"
        return "sein", "his" if self.human and self.gender == "m" else "its"


def _pronoun(forms: str, en: str, person: str, gender: str = "m") -> NounPhrase:
    nom, acc, dat = forms.split()
    subject, obj = en.split()
    return NounPhrase(nom, acc, dat, "", subject, obj, person, gender)


PRONOUNS = {
    "ich": _pronoun("ich mich mir", "I me", "1s"),
    "du": _pronoun("du dich dir", "you you", "2s"),
    "er": _pronoun("er ihn ihm", "he him", "3s"),
    "sie": _pronoun("sie sie ihr", "she her", "3s", "f"),
    "es": _pronoun("es es ihm", "it it", "3s", "n"),
    "wir": _pronoun("wir uns uns", "we us", "1p"),
    "sie pl": _pronoun("sie sie ihnen", "they them", "3p", "p"),
}


def name(word: str, gender: str) -> NounPhrase:
    """A first name, which only the genitive changes."""
    genitive = word + ("'" if word.endswith(("s", "x", "z")) else "s")
    return NounPhrase(word, word, word, genitive, word, word, "3s", gender)


@cache
def noun_phrase(
    noun: Noun,
    det: tuple[str, str] | str = "der",
    adjective: tuple[str, str] | None = None,
    plural: bool = False,
    human: bool = False,
) -> NounPhrase:
    """Decline determiner, adjective and noun together.

    ``det`` is a German determiner, or a pair where it has no fixed English ("ihr", "her"); "ein"
    has no plural; a number is a pair whose German word does not decline ("drei", "three").
    """
    word, en_det = det if isinstance(det, tuple) else (det, _ENGLISH_DETERMINER.get(det, ""))
    gender = "p" if plural else noun.gender.replace("w", "m")
    numeral = plural and word not in (*_ENGLISH_DETERMINER, "ihr", "ein")
    forms = []
    for case in german.CASES:
        pattern = "" if numeral or (plural and word == "ein") else word
        parts = [word if numeral else german.determiner(pattern, gender, case)]
        if adjective:
            parts.append(german.adjective(adjective[0], pattern, gender, case))
        parts.append(german.noun(noun.singular, noun.plural, "p" if plural else noun.gender, case))
        forms.append(" ".join(part for part in parts if part))

    en = english.plural(noun.english) if plural else noun.english
    en = f"{adjective[1]} {en}" if adjective else en
    if word == "ein" and not plural:
        en = english.article(en)
    elif plural and en_det == "this":
        en = f"these {en}"
    else:
        en = f"{en_det} {en}".strip()
    nom, acc, dat, gen = forms
    return NounPhrase(nom, acc, dat, gen, en, en, "3p" if plural else "3s", gender, human)


@dataclass(frozen=True)
class Clause:
    """A German clause in pieces, so that each word order can be read off."""

    subject: str
    finite: str
    middle: str
    tail: str
    end: str  # the verbs of a verb-final clause, in its order

    def main(self, front: str = "") -> str:
        """Verb second; with something in ``front``, the subject follows the verb."""
        order = [front, self.finite, self.subject] if front else [self.subject, self.finite]
        return _join(*order, self.middle, self.tail)

    def question(self) -> str:
        """Verb first."""
        return _join(self.finite, self.subject, self.middle, self.tail)

    def final(self) -> str:
        """Verb last, as after *weil* or *dass*."""
        return _join(self.subject, self.middle, self.end)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def clause(subject: NounPhrase, verb: german.Verb, tense: str, middle: str) -> Clause:
    """A clause in present, past, perfect, pluperfect, future or passive, or with a modal verb."""
    who = subject.person
    match tense:
        case "present" | "past":
            finite = verb.present(who) if tense == "present" else verb.preterite(who)
            return Clause(subject.nom, finite, middle, verb.prefix, verb.prefix + finite)
        case "perfect" | "pluperfect":
            word = "sein" if verb.sein else "haben"
            finite = german.auxiliary(word, who, past=tense == "pluperfect")
            tail = verb.participle
        case "passive":
            finite, tail = german.auxiliary("werden", who, past=True), verb.participle
        case "future":
            finite, tail = german.auxiliary("werden", who), verb.infinitive
        case modal:
            finite, tail = german.auxiliary(modal, who), verb.infinitive
    return Clause(subject.nom, finite, middle, tail, f"{tail} {finite}")


_MODALS = {
    "können": ("can",) * 2,
    "müssen": ("has to", "have to"),
    "wollen": ("wants to", "want to"),
    "sollen": ("should",) * 2,
    "dürfen": ("is allowed to", "are allowed to"),
    "möchten": ("would like to",) * 2,
}
MODALS = tuple(sorted(_MODALS))


@dataclass(frozen=True)
class Deed:
    """Who does what: a subject, a verb, and whatever else belongs to it in either language."""

    subject: NounPhrase
    verb: german.Verb
    en_verb: str
    object_de: str
    object_en: str

    def by(self, subject: NounPhrase) -> Deed:
        """The same deed by somebody else, or by a pronoun."""
        return replace(self, subject=subject)

    def german(self, tense: str, *adverbs: str, after: str = "") -> Clause:
        """The German clause with ``adverbs`` before the object and ``after`` behind it."""
        return clause(self.subject, self.verb, tense, _join(*adverbs, self.object_de, after))

    def english(self, tense: str, *adverbs: str) -> str:
        """The English clause with ``adverbs`` at its end."""
        return _join(self.subject.en, self.en_predicate(tense), *adverbs)

    def en_predicate(self, tense: str) -> str:
        """The English clause without its subject."""
        return _join(self._en_finite(tense), self.object_en)

    def en_rest(self, form: str = "base") -> str:
        """A non-finite verb with its object: *buy a book*, *buying a book*."""
        return _join(english.verb(self.en_verb, form), self.object_en)

    def _en_finite(self, tense: str) -> str:
        if tense not in _MODALS:
            return english.finite(self.en_verb, tense, self.subject.person)
        if tense == "dürfen" and self.subject.person == "1s":
            return f"am allowed to {self.en_verb}"
        third, other = _MODALS[tense]
        return f"{third if self.subject.person == '3s' else other} {self.en_verb}"

    def infinitive(self) -> str:
        """German infinitive group with *zu*: *den Arzt anzurufen*."""
        return _join(self.object_de, self.verb.zu)
