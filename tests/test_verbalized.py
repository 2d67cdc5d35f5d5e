"""The embedded corpus: grammar against hand-written pairs, and the properties of its text."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data import verbalized as corpus_module
from lnexp.data.verbalized import (
    cldr,
    embedded,
    english,
    german,
    lexicon,
    plain,
    relations,
    scenes,
    subordinate,
    verbs,
    whereabouts,
)
from lnexp.data.verbalized.facts import Draw, split_of
from lnexp.data.verbalized.phrases import PRONOUNS, clause, name, noun_phrase
from lnexp.errors import InputError


@pytest.fixture(scope="module")
def sentences():
    return corpus_module.sentences()


@pytest.fixture(scope="module")
def corpus(sentences):
    return {
        split: ([s[0] for s in rows], [s[1] for s in rows]) for split, rows in sentences.items()
    }


def noun(label: str, word: str):
    return lexicon.nouns()[label][word]


# Grammar


def test_ordinals_are_inflected():
    assert german.ordinal(3) == "dritte"
    assert german.ordinal(3, "en") == "dritten"
    assert german.ordinal(7, "en") == "siebten"
    assert german.ordinal(21, "en") == "einundzwanzigsten"
    assert scenes.on_date(3, 4) == ("am dritten Mai", "on the third of May")
    assert scenes.on_date(21, 11) == (
        "am einundzwanzigsten Dezember",
        "on the twenty-first of December",
    )


@pytest.mark.parametrize(
    ("hour", "minute", "de", "en"),
    [
        (7, 0, "sieben Uhr", "seven o'clock"),
        (1, 0, "ein Uhr", "one o'clock"),
        (7, 30, "halb acht", "half past seven"),
        (12, 30, "halb eins", "half past twelve"),
        (7, 15, "Viertel nach sieben", "a quarter past seven"),
        (12, 45, "Viertel vor eins", "a quarter to one"),
        (1, 5, "fünf nach eins", "five past one"),
        (7, 25, "fünf vor halb acht", "twenty-five past seven"),
        (7, 35, "fünf nach halb acht", "twenty-five to eight"),
        (11, 40, "zwanzig vor zwölf", "twenty to twelve"),
    ],
)
def test_clock_times_read_as_spoken(hour, minute, de, en):
    assert german.clock(hour, minute) == de
    assert english.clock(hour, minute) == en


@pytest.mark.parametrize(
    ("n", "unit", "case", "de", "en"),
    [
        (1, "length-kilometer", "nom", "ein Kilometer", "one kilometre"),
        (1, "length-kilometer", "acc", "einen Kilometer", "one kilometre"),
        (1, "duration-hour", "nom", "eine Stunde", "one hour"),
        (1, "duration-year", "dat", "einem Jahr", "one year"),
        (1, "duration-week", "dat", "einer Woche", "one week"),
        (21, "length-kilometer", "nom", "einundzwanzig Kilometer", "twenty-one kilometres"),
        (3, "duration-day", "dat", "drei Tagen", "three days"),
        (2, "duration-hour", "dat", "zwei Stunden", "two hours"),
        (100, "length-meter", "nom", "hundert Meter", "one hundred metres"),
        (16, "mass-kilogram", "dat", "sechzehn Kilogramm", "sixteen kilograms"),
        (
            131,
            "length-meter",
            "nom",
            "hunderteinunddreißig Meter",
            "one hundred and thirty-one metres",
        ),
    ],
)
def test_quantities_agree_with_their_unit(n, unit, case, de, en):
    assert cldr.quantity(n, unit, case) == (de, en)


def test_one_euro_is_accusative_and_money_does_not_inflect():
    assert cldr.price(1, "EUR") == ("einen Euro", "one euro")
    assert cldr.price(21, "EUR") == ("einundzwanzig Euro", "twenty-one euros")


def test_years_are_read_in_hundreds():
    assert german.year(1997) == "neunzehnhundertsiebenundneunzig"
    assert english.year(1997) == "nineteen ninety-seven"


@pytest.mark.parametrize(
    ("code", "where", "whither", "whence", "en"),
    [
        ("IT", "in Italien", "nach Italien", "aus Italien", "Italy"),
        ("CH", "in der Schweiz", "in die Schweiz", "aus der Schweiz", "Switzerland"),
        ("TR", "in der Türkei", "in die Türkei", "aus der Türkei", "Türkiye"),
        ("IR", "im Iran", "in den Iran", "aus dem Iran", "Iran"),
        (
            "NL",
            "in den Niederlanden",
            "in die Niederlande",
            "aus den Niederlanden",
            "the Netherlands",
        ),
        (
            "US",
            "in den Vereinigten Staaten",
            "in die Vereinigten Staaten",
            "aus den Vereinigten Staaten",
            "the United States",
        ),
        (
            "DO",
            "in der Dominikanischen Republik",
            "in die Dominikanische Republik",
            "aus der Dominikanischen Republik",
            "the Dominican Republic",
        ),
        ("MT", "auf Malta", "nach Malta", "aus Malta", "Malta"),
        (
            "MV",
            "auf den Malediven",
            "auf die Malediven",
            "von den Malediven",
            "the Maldives",
        ),
    ],
)
def test_territories_take_their_article(code, where, whither, whence, en):
    assert cldr.territories()[code] == cldr.Place(where, whither, whence, en)


@pytest.mark.parametrize(
    ("label", "word", "det", "adjective", "plural", "forms"),
    [
        (
            "food",
            "Apfel",
            "ein",
            "frisch",
            False,
            "ein frischer Apfel|einen frischen Apfel|einem frischen Apfel|eines frischen Apfels",
        ),
        (
            "food",
            "Apfel",
            "der",
            "frisch",
            True,
            "die frischen Äpfel|die frischen Äpfel|den frischen Äpfeln|der frischen Äpfel",
        ),
        (
            "food",
            "Apfel",
            "ein",
            "frisch",
            True,
            "frische Äpfel|frische Äpfel|frischen Äpfeln|frischer Äpfel",
        ),
        (
            "text",
            "Buch",
            "mein",
            "teuer",
            False,
            "mein teures Buch|mein teures Buch|meinem teuren Buch|meines teuren Buches",
        ),
        (
            "machine",
            "Auto",
            "kein",
            "alt",
            True,
            "keine alten Autos|keine alten Autos|keinen alten Autos|keiner alten Autos",
        ),
        (
            "person",
            "Student",
            "dieser",
            "müde",
            False,
            "dieser müde Student|diesen müden Studenten|diesem müden Studenten|"
            "dieses müden Studenten",
        ),
        (
            "person",
            "Frau",
            "der",
            "jung",
            False,
            "die junge Frau|die junge Frau|der jungen Frau|der jungen Frau",
        ),
        (
            "building",
            "Turm",
            "der",
            "hoch",
            False,
            "der hohe Turm|den hohen Turm|dem hohen Turm|des hohen Turmes",
        ),
        (
            "room",
            "Zimmer",
            "ein",
            "dunkel",
            False,
            "ein dunkles Zimmer|ein dunkles Zimmer|einem dunklen Zimmer|eines dunklen Zimmers",
        ),
    ],
)
def test_noun_phrases_decline(label, word, det, adjective, plural, forms):
    phrase = noun_phrase(noun(label, word), det, (adjective, "x"), plural=plural)
    assert "|".join([phrase.nom, phrase.acc, phrase.dat, phrase.gen]) == forms


def test_numerals_take_the_strong_declension():
    friends = noun_phrase(noun("person", "Freund"), ("drei", "three"), ("alt", "old"), plural=True)
    assert friends.nom == "drei alte Freunde"
    assert friends.dat == "drei alten Freunden"
    assert friends.en == "three old friends"


def test_names_form_their_genitive():
    assert name("Anna", "f").gen == "Annas"
    assert name("Tobias", "m").gen == "Tobias'"
    assert english.possessive("Tobias") == "Tobias's"
    assert english.possessive("the witness") == "the witness's"


def test_prepositions_contract_with_the_article():
    assert scenes.site("Park") == ("im Park", "in the park", "in den Park", "to the park")
    assert scenes.site("Museum")[2] == "ins Museum"
    assert scenes.site("Schule")[0] == "in der Schule"
    assert scenes.site("Haltestelle")[2] == "zur Haltestelle"
    assert scenes.site("Bahnhof")[::2] == ("am Bahnhof", "zum Bahnhof")


@pytest.mark.parametrize(
    ("word", "forms", "past", "participle", "zu"),
    [
        ("an|rufen", "rufe rufst ruft rufen rufen", "rief", "angerufen", "anzurufen"),
        ("ein|laden", "lade lädst lädt laden laden", "lud", "eingeladen", "einzuladen"),
        ("lesen", "lese liest liest lesen lesen", "las", "gelesen", "zu lesen"),
        ("essen", "esse isst isst essen essen", "aß", "gegessen", "zu essen"),
        ("betreten", "betrete betrittst betritt betreten betreten", "betrat", "betreten",
         "zu betreten"),
        ("öffnen", "öffne öffnest öffnet öffnen öffnen", "öffnete", "geöffnet", "zu öffnen"),
        ("bügeln", "bügle bügelst bügelt bügeln bügeln", "bügelte", "gebügelt", "zu bügeln"),
        ("an|probieren", "probiere probierst probiert probieren probieren", "probierte",
         "anprobiert", "anzuprobieren"),
        ("vor|bereiten", "bereite bereitest bereitet bereiten bereiten", "bereitete",
         "vorbereitet", "vorzubereiten"),
        ("verkaufen", "verkaufe verkaufst verkauft verkaufen verkaufen", "verkaufte",
         "verkauft", "zu verkaufen"),
        ("wiederholen", "wiederhole wiederholst wiederholt wiederholen wiederholen",
         "wiederholte", "wiederholt", "zu wiederholen"),
        ("putzen", "putze putzt putzt putzen putzen", "putzte", "geputzt", "zu putzen"),
        ("beten", "bete betest betet beten beten", "betete", "gebetet", "zu beten"),
    ],
)  # fmt: skip
def test_verbs_conjugate(word, forms, past, participle, zu):
    verb = lexicon.verb(word)
    assert " ".join(verb.present(person) for person in german.PERSONS) == forms
    assert (verb.preterite("3s"), verb.participle, verb.zu) == (past, participle, zu)


@pytest.mark.parametrize(
    ("phrase", "third", "past", "participle", "ing"),
    [
        ("pick up", "picks up", "picked up", "picked up", "picking up"),
        ("tidy up", "tidies up", "tidied up", "tidied up", "tidying up"),
        ("go shopping", "goes shopping", "went shopping", "gone shopping", "going shopping"),
        ("watch", "watches", "watched", "watched", "watching"),
        ("write", "writes", "wrote", "written", "writing"),
        ("see", "sees", "saw", "seen", "seeing"),
        ("lie", "lies", "lied", "lied", "lying"),
        ("put on", "puts on", "put on", "put on", "putting on"),
        ("cancel", "cancels", "cancelled", "cancelled", "cancelling"),
        ("pray", "prays", "prayed", "prayed", "praying"),
        ("have breakfast", "has breakfast", "had breakfast", "had breakfast",
         "having breakfast"),
    ],
)  # fmt: skip
def test_english_verbs_inflect(phrase, third, past, participle, ing):
    forms = [english.verb(phrase, form) for form in ("third", "past", "participle", "ing")]
    assert forms == [third, past, participle, ing]


def test_english_articles_and_plurals():
    assert english.article("honest man") == "an honest man"
    assert english.article("umbrella") == "an umbrella"
    assert english.article("pear") == "a pear"
    words = ["fairy tale", "wolf", "library", "box", "donkey", "fisherman", "sheep"]
    assert [english.plural(w) for w in words] == [
        "fairy tales", "wolves", "libraries", "boxes", "donkeys", "fishermen", "sheep",
    ]  # fmt: skip


# Word order


def call(tense: str, middle: str = "den Arzt", who: str = "er"):
    return clause(PRONOUNS[who], lexicon.verb("an|rufen"), tense, middle)


@pytest.mark.parametrize(
    ("tense", "main", "fronted", "final"),
    [
        ("present", "er ruft den Arzt an", "heute ruft er den Arzt an", "er den Arzt anruft"),
        ("past", "er rief den Arzt an", "heute rief er den Arzt an", "er den Arzt anrief"),
        ("perfect", "er hat den Arzt angerufen", "heute hat er den Arzt angerufen",
         "er den Arzt angerufen hat"),
        ("pluperfect", "er hatte den Arzt angerufen", "heute hatte er den Arzt angerufen",
         "er den Arzt angerufen hatte"),
        ("future", "er wird den Arzt anrufen", "heute wird er den Arzt anrufen",
         "er den Arzt anrufen wird"),
        ("müssen", "er muss den Arzt anrufen", "heute muss er den Arzt anrufen",
         "er den Arzt anrufen muss"),
    ],
)  # fmt: skip
def test_the_verb_is_second_in_main_and_last_in_subordinate_clauses(tense, main, fronted, final):
    made = call(tense)
    assert (made.main(), made.main("heute"), made.final()) == (main, fronted, final)


def test_verbs_of_motion_form_the_perfect_with_sein():
    arrive = clause(PRONOUNS["wir"], lexicon.verb("an|kommen*"), "perfect", "gestern")
    assert arrive.main() == "wir sind gestern angekommen"
    assert arrive.question() == "sind wir gestern angekommen"


class Fixed(Draw):
    """A draw whose facts are given, and which always picks the first wording."""

    def __init__(self, *facts: tuple[str, ...]) -> None:
        super().__init__("train", 0)
        self.given = list(facts)

    def fact(self, kind, *columns):
        values = self.given.pop(0)
        assert all(value in column for value, column in zip(values, columns))
        return values

    def pick(self, options):
        return options[0]

    def chance(self, in_four):
        return False


CAT, LETTER = "suchen;look for;animal;Katze", "schreiben;write;text;Brief"


@pytest.mark.parametrize(
    ("template", "facts", "de", "en"),
    [
        (plain.habit, [("Anna", LETTER)], "Anna schreibt jeden Tag den Brief.",
         "Anna writes the letter every day."),
        (plain.in_progress, [("ich", CAT)], "Ich suche jetzt die Katze.",
         "I am looking for the cat now."),
        (plain.not_done, [("der Arzt", LETTER)],
         "Der Arzt hat gestern den Brief nicht geschrieben.",
         "The doctor did not write the letter yesterday."),
        (plain.asked_whether, [("du", "an|rufen;call;family;Tante")],
         "Hast du gestern deine Tante angerufen?", "Did you call your aunt yesterday?"),
        (plain.polite_request, [("ab|holen;pick up;thing;Koffer",)],
         "Bitte holen Sie morgen den Koffer ab.", "Please pick up the suitcase tomorrow."),
        (plain.birthday, [("mein Bruder", "3", "4")],
         "Mein Bruder hat am dritten Mai Geburtstag.",
         "My brother's birthday is on the third of May."),
        (plain.today, [("0", "3", "4")], "Heute ist Montag, der dritte Mai.",
         "Today is Monday, the third of May."),
        (plain.departure, [("Rom", "der Zug"), ("0", "7", "30")],
         "Der Zug aus Rom kommt am Montag um halb acht an.",
         "The train from Rome arrives at half past seven on Monday."),
        (plain.lives, [("sie", "CH"), ("1 year",)],
         "Sie wohnt seit einem Jahr in der Schweiz.",
         "She has lived in Switzerland for one year."),
        (plain.came_back, [("wir", "TR")], "Gestern sind wir aus der Türkei zurückgekommen.",
         "Yesterday we came back from Türkiye."),
        (relations.owner, [("der Student", "Ball")], "Der Ball des Studenten ist neu.",
         "The student's ball is new."),
        (relations.has, [("ich", "Hund", "Katze", "3")], "Ich habe drei Hunde und eine Katze.",
         "I have three dogs and a cat."),
        (whereabouts.distance, [("Bahnhof", "Schule", "21")],
         "Vom Bahnhof bis zur Schule sind es einundzwanzig Kilometer.",
         "It is twenty-one kilometres from the station to the school."),
        (whereabouts.floor, [("wir", "3")], "Wir wohnen im dritten Stock.",
         "We live on the third floor."),
        (whereabouts.gift, [("er", "geben;give;thing;Ball", "die Kinder")],
         "Er hat gestern den Kindern den Ball gegeben.",
         "He gave the children the ball yesterday."),
        (whereabouts.position, [("Bild", "Tisch", "Anna")],
         "Gestern hat Anna das Bild auf den Tisch gelegt.",
         "Yesterday Anna put the picture on the table."),
        (whereabouts.during, [("Paul", "ein|schlafen*;fall asleep;;", "Konzert")],
         "Während des Konzerts ist Paul eingeschlafen.",
         "During the concert Paul fell asleep."),
        (subordinate.because, [("Anna", CAT)],
         "Anna ist glücklich, weil sie die Katze gesucht hat.",
         "Anna is happy because she looked for the cat."),
        (subordinate.although, [("der Arzt", LETTER)],
         "Obwohl der Arzt müde war, hat er den Brief geschrieben.",
         "Although the doctor was tired, he wrote the letter."),
        (subordinate.as_soon_as, [("wir", CAT, "NL")],
         "Sobald wir in den Niederlanden ankommen, wollen wir die Katze suchen.",
         "As soon as we arrive in the Netherlands, we want to look for the cat."),
        (embedded.relative_object, [("Anna", LETTER)],
         "Das ist der Brief, den Anna geschrieben hat.",
         "That is the letter that Anna wrote."),
        (embedded.relative_subject, [("der Arzt", LETTER, "CH")],
         "Der Arzt, der den Brief geschrieben hat, wohnt in der Schweiz.",
         "The doctor who wrote the letter lives in Switzerland."),
        (embedded.in_order_to, [("ich", "ab|holen;pick up;thing;Koffer", "Bahnhof")],
         "Ich bin gestern zum Bahnhof gegangen, um den Koffer abzuholen.",
         "I went to the station yesterday to pick up the suitcase."),
    ],
)  # fmt: skip
def test_constructions_match_hand_written_pairs(monkeypatch, template, facts, de, en):
    monkeypatch.setattr(scenes, "when", lambda d, kind: scenes.WHEN[kind][0])
    monkeypatch.setattr(Draw, "below", lambda self, n: 0)
    made = template(Fixed(*facts))
    assert tuple(map(corpus_module.finish, made)) == (de, en)


def test_every_template_is_used_in_training(sentences):
    kinds = Counter(fact[0] for _, _, facts in sentences["train"] for fact in facts)
    assert len(kinds) > 35
    assert min(kinds.values()) > 100


# The text


def test_sizes(corpus):
    assert {split: len(de) for split, (de, _) in corpus.items()} == {
        "train": 40_000, "valid": 1_000, "test": 1_000,
    }  # fmt: skip


def test_no_sentence_occurs_twice_in_or_across_splits(corpus):
    for side in (0, 1):
        lines = [line for split in corpus.values() for line in split[side]]
        assert len(set(lines)) == len(lines)


def test_a_sentence_uses_facts_of_its_own_split_only(sentences):
    by_split = {
        split: {fact for _, _, facts in rows for fact in facts} for split, rows in sentences.items()
    }
    for split, facts in by_split.items():
        assert {split_of(fact) for fact in facts} == {split}
    assert all(facts for rows in sentences.values() for _, _, facts in rows)
    assert not by_split["train"] & by_split["valid"]
    assert not by_split["train"] & by_split["test"]
    assert not by_split["valid"] & by_split["test"]


def test_lines_are_clean_text(corpus):
    for lines in (line for split in corpus.values() for line in split):
        for line in lines:
            assert 3 <= len(line.split()) <= 25, line
            assert line == " ".join(line.split())
            assert line[0].isupper()
            assert line.endswith((".", "?"))
            assert not any(c.isdigit() or c in "_|;*~+=/()&{}[]\xa0" for c in line), line


def test_german_nouns_are_capitalised(corpus):
    nouns = {n.singular.lower() for group in lexicon.nouns().values() for n in group.values()}
    words = {word.strip(".,?") for line in corpus["train"][0] for word in line.split()}
    assert words & nouns <= {"junge", "schloss", "treffen", "frage"}  # also adjective and verbs


@given(st.lists(st.text(min_size=1), min_size=1).map(tuple))
def test_a_fact_always_has_one_of_the_three_splits(fact):
    assert split_of(fact) in ("train", "valid", "test")
    assert split_of(fact) == split_of(fact)


@given(st.integers(1, 1000), st.integers(0, 2**32))
def test_draws_stay_in_range_and_repeat(n, seed):
    once, again = Draw("train", seed), Draw("train", seed)
    values = [once.below(n) for _ in range(20)]
    assert values == [again.below(n) for _ in range(20)]
    assert all(0 <= v < n for v in values)


@given(st.integers(2, 999))
def test_numbers_are_words(n):
    assert german.number(n).isalpha()
    assert english.number(n).replace("-", "").replace(" ", "").isalpha()


def test_impossible_facts_are_an_error_rather_than_a_hang():
    other = next(x for x in "abcdefgh" if split_of(("kind", x)) == "train")
    with pytest.raises(LookupError, match="no fact of kind kind falls into test"):
        Draw("test", 0).fact("kind", [other])


# The hash


def test_the_digest_is_the_published_one_and_independent_of_the_hash_seed():
    code = (
        "from lnexp.data.verbalized import SHA256, digest, verbalized;"
        "c = verbalized(); print(digest(c) == SHA256, list(c))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True ['train', 'valid', 'test']"


def test_the_digest_sees_every_line(corpus):
    small = {split: (de[:3], en[:3]) for split, (de, en) in corpus.items()}
    before = corpus_module.digest(small)
    small["valid"][1][2] += " "
    assert corpus_module.digest(small) != before


def test_another_wording_is_refused_with_versions_and_remedy(monkeypatch, sentences):
    monkeypatch.setattr(corpus_module, "sentences", lambda: sentences)
    monkeypatch.setattr(corpus_module, "SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"pip install num2words==\S+ babel==\S+") as error:
        corpus_module.verbalized()
    assert "num2words 0" in str(error.value)
    assert "babel 2" in str(error.value)
    assert "\n" not in str(error.value)


def test_verb_tables_only_name_known_noun_classes():
    for table in (verbs.TRANSITIVE, verbs.DATIVE, verbs.GIVING):
        for line in table.strip().splitlines():
            assert set(line.split()[2:]) <= set(lexicon.nouns()), line


def test_a_copy_in_the_cache_is_used_and_a_damaged_one_made_again(tmp_path, monkeypatch, corpus):
    module = corpus_module
    assert module.verbalized(tmp_path) == corpus
    (copy,) = tmp_path.iterdir()
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == module.SHA256
    with monkeypatch.context() as patch:
        patch.setattr(module, "sentences", lambda: pytest.fail("the copy was not used"))
        assert module.verbalized(tmp_path) == corpus
    copy.write_bytes(copy.read_bytes()[:-10])
    assert module.verbalized(tmp_path) == corpus
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == module.SHA256
    copy.unlink()
    copy.mkdir()  # nothing can be written there
    assert module.verbalized(tmp_path) == corpus
