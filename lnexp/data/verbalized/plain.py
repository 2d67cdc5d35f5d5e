"""Sentences of one main clause; each function is one construction and returns German, English."""

from __future__ import annotations

from lnexp.data.verbalized import cldr, english, german, lexicon, scenes, verbs
from lnexp.data.verbalized.facts import Draw
from lnexp.data.verbalized.phrases import MODALS, clause, noun_phrase
from lnexp.data.verbalized.scenes import strings

Pair = tuple[str, str]


def habit(d: Draw) -> Pair:
    """Present tense with a habit: *Jeden Tag kauft Anna ...*."""
    deed, (de, en) = scenes.deed(d, active=True), scenes.when(d, "habit")
    if d.chance(2):
        return deed.german("present").main(de), f"{en} {deed.english('present')}"
    return deed.german("present", de).main(), deed.english("present", en)


def in_progress(d: Draw) -> Pair:
    """*Anna kauft gerade einen Apfel.*, *is buying*."""
    deed, (de, en) = scenes.deed(d, active=True), scenes.when(d, "now")
    return deed.german("present", de).main(), deed.english("progressive", en)


def past(d: Draw) -> Pair:
    """The perfect, whose participle comes last, or a preterite; English simple past."""
    deed, (de, en) = scenes.deed(d), scenes.when(d, "past")
    tense = "past" if deed.subject.person == "3s" and d.chance(1) else "perfect"
    if d.chance(2):
        return deed.german(tense).main(de), f"{en} {deed.english('past')}"
    return deed.german(tense, de).main(), deed.english("past", en)


def already(d: Draw) -> Pair:
    """*hat ... schon gelesen*, *has already read*; *noch nicht*, *has not ... yet*."""
    deed = scenes.deed(d, active=True, definite=True)
    who, have = deed.subject, english.have(deed.subject.person)
    done = deed.en_rest("participle")
    if d.chance(2):
        return deed.german("perfect", after="schon").main(), f"{who.en} {have} already {done}"
    return deed.german("perfect", after="noch nicht").main(), f"{who.en} {have} not {done} yet"


def modal(d: Draw) -> Pair:
    """A modal verb, with the infinitive last."""
    deed, tense = scenes.deed(d, active=True), d.pick(MODALS)
    de, en = scenes.when(d, "future")
    if d.chance(1):
        return deed.german(tense).main(de), f"{en} {deed.english(tense)}"
    return deed.german(tense, de).main(), deed.english(tense, en)


def future(d: Draw) -> Pair:
    """*wird ... kaufen*, *will buy*."""
    deed, (de, en) = scenes.deed(d, active=True), scenes.when(d, "future")
    if d.chance(2):
        return deed.german("future").main(de), f"{en} {deed.english('future')}"
    return deed.german("future", de).main(), deed.english("future", en)


def not_done(d: Draw) -> Pair:
    """*hat ... nicht gefunden*, *did not find*."""
    deed, (de, en) = scenes.deed(d, definite=True), scenes.when(d, "past")
    clause_de = deed.german("perfect", de, after="nicht")
    return clause_de.main(), f"{deed.subject.en} did not {deed.en_rest()} {en}"


def asked_whether(d: Draw) -> Pair:
    """A question without a question word, verb first."""
    deed, (de, en) = scenes.deed(d), scenes.when(d, "past")
    return (
        deed.german("perfect", de).question() + "?",
        f"did {deed.subject.en} {deed.en_rest()} {en}?",
    )


def asked_why(d: Draw) -> Pair:
    """*Warum* and *wann* questions."""
    deed = scenes.deed(d, active=True)
    who, rest = deed.subject, deed.en_rest()
    if d.chance(2):
        word, en_word = d.pick([("warum", "why"), ("wann", "when")])
        return deed.german("perfect").main(word) + "?", f"{en_word} did {who.en} {rest}?"
    tense = d.pick(["wollen", "müssen"])
    en_modal = {"wollen": "want to", "müssen": "have to"}[tense]
    return (
        deed.german(tense).main("warum") + "?",
        f"why {english.do(who.person)} {who.en} {en_modal} {rest}?",
    )


def polite_request(d: Draw) -> Pair:
    """The formal imperative, with a separable prefix at the end."""
    (option,) = d.fact("request", lexicon.options(verbs.TRANSITIVE, active=True))
    word, en_word, label, noun = option.split(";")
    verb, np, (de, en) = lexicon.verb(word), scenes.thing(d, label, noun), scenes.when(d, "future")
    end = f" {verb.prefix}" if verb.prefix else ""
    return (
        f"bitte {verb.base} Sie {de} {np.acc}{end}",
        f"please {en_word} {np.en_object} {en}",
    )


def appointment(d: Draw) -> Pair:
    """Clock times: *um halb acht*, *at half past seven*."""
    deed, (de, en) = scenes.deed(d, active=True), scenes.at_time(d)
    if d.chance(2):
        return deed.german("perfect", de).main(), deed.english("past", en)
    return deed.german("müssen").main(de), f"{en} {deed.english('müssen')}"


_CITIES, _COUNTRIES = sorted(scenes.CITIES), sorted(cldr.territories())


def departure(d: Draw) -> Pair:
    """*Der Zug nach Rom fährt um halb acht ab.*; *Das Flugzeug aus Italien kommt ... an.*."""
    if d.chance(2):
        where, line = d.fact("line", _COUNTRIES, ["das Flugzeug"])
    else:
        where, line = d.fact("line", _CITIES, ["der Zug", "der Bus"])
    place, (clock, en_clock) = scenes.place(where), scenes.at_time(d)
    en_line = {"der Zug": "train", "der Bus": "bus", "das Flugzeug": "plane"}[line]
    if d.chance(2):
        verb = "fliegt" if line == "das Flugzeug" else "fährt"
        return (
            f"{line} {place.whither} {verb} {clock} ab",
            f"the {en_line} to {place.english} departs {en_clock}",
        )
    return (
        f"{line} {place.whence} kommt {clock} an",
        f"the {en_line} from {place.english} arrives {en_clock}",
    )


def birthday(d: Draw) -> Pair:
    """*hat am dritten Mai Geburtstag*, *birthday is on the third of May*."""
    key, day, month = d.fact("birthday", lexicon.subjects("single"), scenes.DAYS, scenes.MONTHS)
    who, (de, en) = scenes.person(d, key), scenes.on_date(int(day), int(month))
    return f"{who.nom} hat {de} Geburtstag", f"{english.possessive(who.en)} birthday is {en}"


def today(d: Draw) -> Pair:
    """The nominative of an ordinal: *Heute ist Montag, der dritte Mai.*."""
    weekday, day, month = d.fact("today", scenes.WEEKDAYS, scenes.DAYS, scenes.MONTHS)
    de_day, en_day = cldr.weekdays()[int(weekday)]
    de_month, en_month = cldr.months()[int(month)]
    n = int(day)
    de_adverb, en_adverb, de_verb, en_verb = d.pick(
        [("heute", "today", "ist", "is"), ("gestern", "yesterday", "war", "was"),
         ("morgen", "tomorrow", "ist", "is")]
    )  # fmt: skip
    return (
        f"{de_adverb} {de_verb} {de_day}, der {german.ordinal(n)} {de_month}",
        f"{en_adverb} {en_verb} {en_day}, the {english.ordinal(n)} of {en_month}",
    )


def stay(d: Draw) -> Pair:
    """From one date to another: *vom dritten bis zum zwölften Mai*."""
    who, place = scenes.journey(d, "stay")
    first, last, month = d.fact("dates", scenes.DAYS[:14], scenes.DAYS[14:], scenes.MONTHS)
    de_month, en_month = cldr.months()[int(month)]
    a, b = int(first), int(last)
    return (
        f"vom {german.ordinal(a, 'en')} bis zum {german.ordinal(b, 'en')} {de_month} "
        f"{german.auxiliary('sein', who.person)} {who.nom} {place.where}",
        f"from the {english.ordinal(a)} to the {english.ordinal(b)} of {en_month} "
        f"{who.en} {english.be(who.person)} in {place.english}",
    )


def travel(d: Draw) -> Pair:
    """Time before manner before place in German, the reverse in English."""
    (who, place), (de, en) = scenes.journey(d, "travel"), scenes.when(d, "past")
    verb, en_verb = d.pick([("fahren*", "travel"), ("fliegen*", "fly")])
    company, en_company = _company(d, who.possessive())
    middle = f"{company} {place.whither}"
    tail = f"to {place.english} {en_company}"
    if d.chance(2):
        order = clause(who, lexicon.verb(verb), "perfect", middle).main(de)
        return order, f"{en} {who.en} {english.verb(en_verb, 'past')} {tail}"
    order = clause(who, lexicon.verb(verb), "perfect", f"{de} {middle}").main()
    return order, f"{who.en} {english.verb(en_verb, 'past')} {tail} {en}"


def _company(d: Draw, owner: Pair) -> Pair:
    noun = d.pick(sorted(lexicon.family().values(), key=lambda n: n.singular))
    if d.chance(2):
        several = noun.singular not in ("Vater", "Mutter", "Großvater", "Großmutter")
        np = noun_phrase(noun, owner, plural=several and d.chance(2), human=True)
        return f"mit {np.dat}", f"with {np.en}"
    people = lexicon.nouns()["person"]
    n, role = d.fact("company", strings(range(2, 30)), sorted(people))
    np = scenes.amount(people[role], int(n))
    return f"mit {np.dat}", f"with {np.en}"


def came_back(d: Draw) -> Pair:
    """*aus der Türkei zurückgekommen*, *came back from Türkiye*."""
    (who, place), (de, en) = scenes.journey(d, "return"), scenes.when(d, "past")
    verb = lexicon.verb("zurück|kommen*")
    return (
        clause(who, verb, "perfect", place.whence).main(de),
        f"{en} {who.en} came back from {place.english}",
    )


def lives(d: Draw) -> Pair:
    """*wohnt seit drei Jahren in der Schweiz*, *has lived in Switzerland for three years*."""
    (who, place), (de, en) = scenes.journey(d, "home"), scenes.duration(d, "seit")
    verb, en_verb = d.pick([("wohnen", "live"), ("arbeiten", "work")])
    sentence = clause(who, lexicon.verb(verb), "present", f"{de} {place.where}").main()
    have = english.have(who.person)
    return sentence, f"{who.en} {have} {en_verb}{'d' * en_verb.endswith('e')}" + (
        f"{'ed' * (en_verb == 'work')} in {place.english} {en}"
    )


def language(d: Draw) -> Pair:
    """*lernt seit drei Jahren Dänisch*, *has been learning Danish for three years*."""
    key, code, other = d.fact("language", lexicon.subjects(), *[sorted(cldr.languages())] * 2)
    who, (de, en) = scenes.person(d, key), cldr.languages()[code]
    if d.chance(2) or code == other:
        since, en_since = scenes.duration(d, "seit")
        sentence = clause(who, lexicon.verb("lernen"), "present", f"{since} {de}").main()
        return sentence, f"{who.en} {english.have(who.person)} been learning {en} {en_since}"
    de_other, en_other = cldr.languages()[other]
    sentence = clause(who, lexicon.verb("sprechen"), "present", f"{de} und {de_other}").main()
    return sentence, f"{who.en} {english.verb('speak', _form(who.person))} {en} and {en_other}"


def _form(person: str) -> str:
    return "third" if person == "3s" else "base"


PLAIN = (
    habit, in_progress, past, past, already, modal, modal, future, not_done, asked_whether,
    asked_why, polite_request, appointment, departure, birthday, today, stay, travel, came_back,
    lives, language,
)  # fmt: skip
