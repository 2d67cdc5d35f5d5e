"""The corpus's own verbs, with the classes of nouns they take, and places where things happen.

A verb line is ``German English classes``: ``|`` after a separable prefix, ``*`` for a perfect with
*sein*, ``~`` where English avoids the progressive, underscores for spaces.
"""

from __future__ import annotations

TRANSITIVE = """
kaufen buy food thing clothes machine
verkaufen sell thing clothes machine animal
essen eat food
probieren taste food
bestellen order food thing clothes machine
lesen read text
schreiben write text
übersetzen translate text
vor|lesen read_out text
suchen look_for thing text clothes animal person
finden find~ thing text clothes
verlieren lose~ thing clothes text
vergessen forget~ thing clothes text event
verstecken hide thing text
holen fetch thing text
tragen wear clothes
an|ziehen put_on clothes
aus|ziehen take_off clothes
an|probieren try_on clothes
waschen wash clothes
bügeln iron clothes
reparieren repair machine
ein|schalten switch_on device
aus|schalten switch_off device
öffnen open opening
schließen close opening
putzen clean room
auf|räumen tidy_up room
malen paint animal building
zeichnen draw animal building
fotografieren photograph animal building person
besuchen visit person building
bauen build building
verlassen leave building room
betreten enter building room
sehen see~ animal person building
beobachten watch animal person
füttern feed animal
streicheln stroke animal
fangen catch animal
jagen chase animal
an|rufen call person
ein|laden invite person
ab|holen pick_up person thing
treffen meet person
fragen ask person
begrüßen greet person
kennen|lernen get_to_know person
verstehen understand~ question person text
erklären explain question
lösen solve puzzle
beantworten answer asked
wiederholen repeat speech
mit|bringen bring_along food thing
zurück|bringen bring_back thing text
aus|leihen borrow thing text machine
weg|werfen throw_away thing text clothes food
ein|packen pack thing clothes text
aus|packen unpack thing clothes
ab|geben hand_in text
vor|bereiten prepare event
planen plan event
ab|sagen cancel event
zerbrechen break~ fragile
an|bieten offer food
vermissen miss~ person animal
lieben love~ animal event
"""
DATIVE = """
helfen help person
danken thank person
antworten answer person
zu|hören listen_to person
folgen follow* person animal
vertrauen trust~ person
gratulieren congratulate person
widersprechen contradict person
zu|winken wave_to person
"""
GIVING = """
geben give thing text food
zeigen show thing text building animal
schicken send thing text
leihen lend thing machine text
bringen bring thing food text
"""
ACTS = """
arbeiten work
schlafen sleep
lachen laugh
singen sing
tanzen dance
schwimmen swim*
warten wait
auf|stehen get_up*
auf|wachen wake_up*
ein|schlafen fall_asleep*
ein|kaufen go_shopping
an|kommen arrive*
zurück|kommen come_back*
weg|gehen go_away*
aus|gehen go_out*
mit|kommen come_along*
frühstücken have_breakfast
fern|sehen watch_television
kochen cook
lernen study
weinen cry
nach|denken think
zu|hören listen
um|ziehen move_house*
laufen run*
wandern hike*
rauchen smoke
beten pray
duschen take_a_shower
lügen lie
"""
# Acts that can happen in a place.
PLACED = """
arbeiten work
schlafen sleep
lachen laugh
singen sing
tanzen dance
warten wait
ein|kaufen go_shopping
frühstücken have_breakfast
lernen study
weinen cry
ein|schlafen fall_asleep*
auf|wachen wake_up*
"""
# Infinitive, third person present, third person past, participle, of bases that are not regular.
IRREGULAR = """
essen isst aß gegessen
lesen liest las gelesen
schreiben schreibt schrieb geschrieben
finden findet fand gefunden
verlieren verliert verlor verloren
vergessen vergisst vergaß vergessen
tragen trägt trug getragen
ziehen zieht zog gezogen
waschen wäscht wusch gewaschen
schließen schließt schloss geschlossen
verlassen verlässt verließ verlassen
betreten betritt betrat betreten
sehen sieht sah gesehen
fangen fängt fing gefangen
rufen ruft rief gerufen
laden lädt lud geladen
treffen trifft traf getroffen
verstehen versteht verstand verstanden
bringen bringt brachte gebracht
leihen leiht lieh geliehen
werfen wirft warf geworfen
geben gibt gab gegeben
zerbrechen zerbricht zerbrach zerbrochen
bieten bietet bot geboten
helfen hilft half geholfen
widersprechen widerspricht widersprach widersprochen
schlafen schläft schlief geschlafen
singen singt sang gesungen
schwimmen schwimmt schwamm geschwommen
stehen steht stand gestanden
kommen kommt kam gekommen
gehen geht ging gegangen
denken denkt dachte gedacht
laufen läuft lief gelaufen
lügen lügt log gelogen
fahren fährt fuhr gefahren
fliegen fliegt flog geflogen
liegen liegt lag gelegen
beschließen beschließt beschloss beschlossen
versprechen verspricht versprach versprochen
sprechen spricht sprach gesprochen
lassen lässt ließ gelassen
bleiben bleibt blieb geblieben
"""

# German noun line, its preposition of place, English, its preposition.
PLACES = """
m Bahnhof Bahnhöfe an station at
m Park Parks in park in
f Schule Schulen in school at
m Markt Märkte auf market at
n Museum Museen in museum in
f Bibliothek Bibliotheken in library in
n Krankenhaus Krankenhäuser in hospital in
f Bäckerei Bäckereien in bakery at
n Restaurant Restaurants in restaurant in
f Apotheke Apotheken in pharmacy at
m Flughafen Flughäfen an airport at
n Büro Büros in office in
m Garten Gärten in garden in
n Hotel Hotels in hotel in
m Wald Wälder in forest in
m Fluss Flüsse an river by
m See Seen an lake by
m Strand Strände an beach on
f Haltestelle Haltestellen an stop at
f Fabrik Fabriken in factory in
"""
FURNITURE = """
m Tisch Tische table
m Stuhl Stühle chair
n Bett Betten bed
n Sofa Sofas sofa
n Regal Regale shelf
m Schrank Schränke cupboard
m Schreibtisch Schreibtische desk
n Klavier Klaviere piano
f Bank Bänke bench
"""
