"""Sentences of two clauses: German puts the verb of the subordinate one last."""

from __future__ import annotations

from lnexp.data.verbalized import english, german, lexicon, scenes, verbs, words
from lnexp.data.verbalized.facts import Draw
from lnexp.data.verbalized.phrases import clause

Pair = tuple[str, str]


def because(d: Draw) -> Pair:
    """*weil* with the perfect: *weil er den Schlüssel verloren hat*."""
    negated = d.chance(1)
    deed, (de, en) = scenes.deed(d, definite=negated), d.pick(lexicon.pairs_of(words.FEELINGS))
    who, again = deed.subject, deed.by(deed.subject.pronoun())
    is_de = german.auxiliary("sein", who.person)
    is_en = english.be(who.person)
    reason = again.german("perfect", after="nicht" if negated else "").final()
    en_reason = (
        f"{again.subject.en} did not {again.en_rest()}" if negated else again.english("past")
    )
    return (
        f"{who.nom} {is_de} {de}, weil {reason}",
        f"{who.en} {is_en} {en} because {en_reason}",
    )


_THINK = (
    ("ich glaube", "I believe"), ("wir hoffen", "we hope"), ("ich weiß", "I know"),
    ("jeder weiß", "everybody knows"), ("es ist gut", "it is good"),
    ("es ist schade", "it is a pity"), ("ich bin sicher", "I am sure"),
    ("niemand glaubt", "nobody believes"), ("der Richter sagt", "the judge says"),
    ("in der Zeitung steht", "the newspaper says"),
)  # fmt: skip
_DOUBT = (
    ("ich weiß nicht", "I do not know"), ("niemand weiß", "nobody knows"),
    ("wir fragen uns", "we wonder"), ("es ist nicht klar", "it is not clear"),
    ("der Richter fragt", "the judge asks"), ("ich möchte wissen", "I would like to know"),
)  # fmt: skip


def that(d: Draw) -> Pair:
    """*dass* in the perfect, future or with a modal verb."""
    (de, en), tense = d.pick(_THINK), d.pick(["perfect", "perfect", "future", "können", "müssen"])
    deed = scenes.deed(d, active=tense != "perfect")
    adverb = scenes.when(d, "past" if tense == "perfect" else "future")
    en_tense = "past" if tense == "perfect" else tense
    return (
        f"{de}, dass {deed.german(tense, adverb[0]).final()}",
        f"{en} that {deed.english(en_tense, adverb[1])}",
    )


def whether(d: Draw) -> Pair:
    """*ob*, *warum* and *wann* with the verb last."""
    (de, en), deed = d.pick(_DOUBT), scenes.deed(d, active=True)
    word, en_word = d.pick([("ob", "whether"), ("warum", "why"), ("wann", "when")])
    tense = d.pick(["perfect", "wollen"])
    en_tense = "past" if tense == "perfect" else tense
    return (
        f"{de}, {word} {deed.german(tense).final()}",
        f"{en} {en_word} {deed.english(en_tense)}",
    )


def if_then(d: Draw) -> Pair:
    """*Wenn ..., wird ...*: the main clause begins with its verb."""
    first, second = scenes.two_deeds(d)
    condition, en_condition = first.german("present").final(), first.english("present")
    if d.chance(1):
        weather = d.pick([("es regnet", "it rains"), ("es schneit", "it snows"),
                          ("die Sonne scheint", "the sun shines")])  # fmt: skip
        condition, en_condition = weather
    tense = d.pick(["future", "müssen", "dürfen"])
    if d.chance(2):
        return (
            second.german(tense).main(f"wenn {condition},"),
            f"if {en_condition}, {second.english(tense)}",
        )
    return (
        f"{second.german(tense).main()}, wenn {condition}",
        f"{second.english(tense)} if {en_condition}",
    )


def as_soon_as(d: Draw) -> Pair:
    """*sobald* with an arrival; the same person goes on."""
    options = lexicon.options(verbs.TRANSITIVE, active=True)
    key, option, where = d.fact("then", lexicon.subjects(), options, scenes.PLACES)
    deed, place = scenes.deed_of(d, key, option), scenes.place(where)
    who, again = deed.subject, deed.by(deed.subject.pronoun())
    arrive = clause(who, lexicon.verb("an|kommen*"), "present", place.where).final()
    en_arrive = english.finite("arrive", "present", who.person)
    return (
        again.german("wollen").main(f"sobald {arrive},"),
        f"as soon as {who.en} {en_arrive} in {place.english}, {again.english('wollen')}",
    )


def when_it_happened(d: Draw) -> Pair:
    """*als* with the preterite, and what was going on."""
    first, second = scenes.two_deeds(d, "third", active=True)
    return (
        second.german("past", "gerade").main(f"als {first.german('past').final()},"),
        f"when {first.english('past')}, {second.english('was_doing')}",
    )


def after_or_before(d: Draw) -> Pair:
    """*nachdem* with the pluperfect, *bevor* with the preterite; one person does both."""
    both = [lexicon.options(verbs.TRANSITIVE + verbs.ACTS, active=True)] * 2
    key, one, two = d.fact("sequence", lexicon.subjects("third"), *both)
    first, second = scenes.deed_of(d, key, one), scenes.deed_of(d, key, two)
    if one == two or (first.object_en and first.object_en == second.object_en):
        return after_or_before(d)
    second = second.by(first.subject.pronoun())
    if d.chance(2):
        return (
            second.german("past").main(f"nachdem {first.german('pluperfect').final()},"),
            f"after {first.english('pluperfect')}, {second.english('past')}",
        )
    return (
        second.german("past").main(f"bevor {first.german('past').final()},"),
        f"before {first.english('past')}, {second.english('past')}",
    )


def although(d: Draw) -> Pair:
    """*obwohl* and a state."""
    deed, (de, en) = scenes.deed(d), d.pick(lexicon.pairs_of(words.STATES))
    who, again = deed.subject, deed.by(deed.subject.pronoun())
    was = german.auxiliary("sein", who.person, past=True)
    return (
        again.german("perfect").main(f"obwohl {who.nom} {de} {was},"),
        f"although {who.en} {english.be(who.person, past=True)} {en}, {again.english('past')}",
    )


def two_people(d: Draw) -> Pair:
    """*während*, *und* and *aber* join what two people do."""
    first, second = scenes.two_deeds(d, active=True)
    match d.below(3):
        case 0:
            return (
                second.german("present").main(f"während {first.german('present').final()},"),
                f"while {first.english('progressive')}, {second.english('progressive')}",
            )
        case 1:
            return (
                f"{first.german('perfect').main()}, aber {second.german('perfect').main()}",
                f"{first.english('past')} but {second.english('past')}",
            )
    return (
        f"{first.german('müssen').main()} und {second.german('wollen').main()}",
        f"{first.english('müssen')} and {second.english('wollen')}",
    )


SUBORDINATE = (
    because, because, that, that, whether, if_then, as_soon_as, when_it_happened,
    after_or_before, although, two_people,
)  # fmt: skip
