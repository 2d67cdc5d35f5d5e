"""Sentences with a relative clause or an infinitive group, or two contrasted objects."""

from __future__ import annotations

from lnexp.data.verbalized import english, german, lexicon, scenes, verbs
from lnexp.data.verbalized.facts import Draw
from lnexp.data.verbalized.phrases import PRONOUNS, NounPhrase, clause, noun_phrase

Pair = tuple[str, str]


_WHO = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "denen"),
}


def _relative(np: NounPhrase, case: str) -> str:
    return _WHO[case]["mfnp".index(np.gender)]


def relative_subject(d: Draw) -> Pair:
    """*Der Mann, der den Hund gefunden hat, wohnt in der Schweiz.*."""
    keys = [key for key in lexicon.subjects("third") if " " in key]
    options = lexicon.options(verbs.TRANSITIVE)
    key, option, where = d.fact("relative", keys, options, scenes.PLACES)
    who = scenes.person(d, key)
    de, en, label, word = option.split(";")
    np = scenes.thing(d, label, word)
    place = scenes.place(where)
    pronoun = NounPhrase(_relative(who, "nom"), "", "", "", "who", "", who.person, who.gender)
    inner = clause(pronoun, lexicon.verb(de), "perfect", np.acc).final()
    past = english.verb(en, "past")
    verb, en_verb = d.pick([("wohnen", "live"), ("arbeiten", "work")])
    outer = clause(who, lexicon.verb(verb), "present", place.where)
    live = english.finite(en_verb, "present", who.person)
    return (
        f"{who.nom}, {inner}, {outer.finite} {place.where}",
        f"{who.en} who {past} {np.en_object} {live} in {place.english}",
    )


def relative_object(d: Draw) -> Pair:
    """*Das ist der Mantel, den Anna gekauft hat.*; *dem Anna geholfen hat*."""
    table, case = d.pick([(verbs.TRANSITIVE, "acc")] * 3 + [(verbs.DATIVE, "dat")])
    choices = lexicon.options(table, named=False)
    key, option = d.fact("relative object", lexicon.subjects(), choices)
    who = scenes.person(d, key)
    de, en, label, word = option.split(";")
    # "die Frau, die Anna sieht" could be read either way round.
    if case == "acc" and label in ("person", "animal") and key not in PRONOUNS:
        return relative_object(d)
    adjective = d.pick(lexicon.adjectives(lexicon.adjective_label(label))) if d.chance(2) else None
    plural = d.chance(1)
    np = noun_phrase(
        lexicon.nouns()[label][word], "der", adjective, plural=plural, human=label == "person"
    )
    if f"der {word}" == key:
        return relative_object(d)
    inner = clause(who, lexicon.verb(de), "perfect", "").final()
    that_en, is_de = ("those are" if plural else "that is"), ("sind" if plural else "ist")
    which = "whom" if np.human else "that"
    verb_en, _, particle = en.partition(" ")
    past = f"{english.verb(verb_en, 'past')} {particle}".strip()
    return (
        f"das {is_de} {np.nom}, {_relative(np, case)} {inner}",
        f"{that_en} {np.en} {which} {who.en} {past}",
    )


def in_order_to(d: Draw) -> Pair:
    """*um ... zu* with the verb last: *um einen Apfel zu kaufen*."""
    key, option, where = d.fact(
        "errand",
        lexicon.subjects(),
        lexicon.options(verbs.TRANSITIVE, True),
        sorted(lexicon.places()),
    )
    deed = scenes.deed_of(d, key, option)
    who = deed.subject
    _, _, to_de, to_en = scenes.site(where)
    when_de, when_en = scenes.when(d, "past")
    went = clause(who, lexicon.verb("gehen*"), "perfect", f"{when_de} {to_de}").main()
    return (
        f"{went}, um {deed.infinitive()}",
        f"{who.en} went {to_en} {when_en} to {deed.en_rest()}",
    )


_PLANS = (
    ("vergessen", "forget"), ("versuchen", "try"), ("beschließen", "decide"),
    ("versprechen", "promise"),
)  # fmt: skip


def intention(d: Draw) -> Pair:
    """An infinitive with *zu*: *hat vergessen, den Arzt anzurufen*."""
    deed, (de, en) = scenes.deed(d, active=True), d.pick(_PLANS)
    who = deed.subject
    outer = clause(who, lexicon.verb(de), "perfect", "").main()
    return (
        f"{outer}, {deed.infinitive()}",
        f"{who.en} {english.verb(en, 'past')} to {deed.en_rest()}",
    )


def not_this_but_that(d: Draw) -> Pair:
    """*nicht den Apfel, sondern die Birne*."""
    choices = lexicon.options(verbs.TRANSITIVE, named=False)
    key, option = d.fact("instead", lexicon.subjects(), choices)
    who = scenes.person(d, key)
    de, en, label, word = option.split(";")
    other = d.pick(sorted(set(lexicon.nouns()[label]) - {word}))
    a, b = (noun_phrase(lexicon.nouns()[label][w]) for w in (word, other))
    inner = clause(who, lexicon.verb(de), "perfect", f"nicht {a.acc}, sondern {b.acc}").main()
    return inner, f"{who.en} did not {en} {a.en} but {b.en}"


def the_nth(d: Draw) -> Pair:
    """*Das ist schon das dritte Buch, das Anna gelesen hat.*."""
    choices = lexicon.options(verbs.TRANSITIVE, named=False)
    key, option, n = d.fact("nth", lexicon.subjects(), choices, [str(i) for i in range(2, 21)])
    who = scenes.person(d, key)
    de, en, label, word = option.split(";")
    if label in ("person", "animal") and key not in PRONOUNS:
        return the_nth(d)
    noun = lexicon.nouns()[label][word]
    gender = noun.gender.replace("w", "m")
    np = noun_phrase(noun, human=label == "person")
    inner = clause(who, lexicon.verb(de), "perfect", "").final()
    which = "whom" if np.human else "that"
    return (
        f"das ist schon {german.determiner('der', gender, 'nom')} {german.ordinal(int(n))} "
        f"{noun.singular}, {_relative(np, 'acc')} {inner}",
        f"that is already the {english.ordinal(int(n))} {noun.english} {which} "
        f"{who.en} {english.have(who.person)} {english.verb(en, 'participle')}",
    )


EMBEDDED = (
    relative_subject, relative_object, in_order_to, intention, not_this_but_that, the_nth,
)  # fmt: skip
