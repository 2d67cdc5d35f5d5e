"""The corpus's own nouns, by what can be done with them.

A line is ``gender German plural English`` with underscores for spaces; gender ``w`` is a weak
masculine (its plural is also its oblique singular); ``+`` repeats nouns of classes above it.
"""

from __future__ import annotations

PEOPLE = """
m Lehrer Lehrer teacher
f Lehrerin Lehrerinnen teacher
m Arzt Ärzte doctor
f Ärztin Ärztinnen doctor
m Koch Köche cook
f Köchin Köchinnen cook
m Bäcker Bäcker baker
m Gärtner Gärtner gardener
f Gärtnerin Gärtnerinnen gardener
m Schüler Schüler pupil
f Schülerin Schülerinnen pupil
w Student Studenten student
f Studentin Studentinnen student
w Nachbar Nachbarn neighbour
f Nachbarin Nachbarinnen neighbour
w Kollege Kollegen colleague
f Kollegin Kolleginnen colleague
w Kunde Kunden customer
m Richter Richter judge
m Künstler Künstler artist
f Künstlerin Künstlerinnen artist
m Sänger Sänger singer
f Sängerin Sängerinnen singer
m Schneider Schneider tailor
w Bauer Bauern farmer
m Fischer Fischer fisherman
m Maler Maler painter
w Journalist Journalisten journalist
f Journalistin Journalistinnen journalist
w Pilot Piloten pilot
w Soldat Soldaten soldier
w Tourist Touristen tourist
m Gast Gäste guest
m Freund Freunde friend
m Mann Männer man
f Frau Frauen woman
w Junge Jungen boy
w Fotograf Fotografen photographer
w Architekt Architekten architect
m Schauspieler Schauspieler actor
f Schauspielerin Schauspielerinnen actress
m Ingenieur Ingenieure engineer
m Mechaniker Mechaniker mechanic
w Zeuge Zeugen witness
m Dichter Dichter poet
"""

NOUNS = {
    "person": PEOPLE,
    "food": """
m Apfel Äpfel apple
f Birne Birnen pear
m Kuchen Kuchen cake
n Brötchen Brötchen roll
f Suppe Suppen soup
f Kartoffel Kartoffeln potato
f Tomate Tomaten tomato
n Ei Eier egg
f Zwiebel Zwiebeln onion
f Orange Orangen orange
f Zitrone Zitronen lemon
m Pfannkuchen Pfannkuchen pancake
m Salat Salate salad
m Fisch Fische fish
f Kirsche Kirschen cherry
f Gurke Gurken cucumber
m Pfirsich Pfirsiche peach
n Würstchen Würstchen sausage
""",
    "text": """
n Buch Bücher book
m Brief Briefe letter
f Zeitung Zeitungen newspaper
m Artikel Artikel article
m Roman Romane novel
n Gedicht Gedichte poem
m Bericht Berichte report
m Vertrag Verträge contract
f Postkarte Postkarten postcard
n Märchen Märchen fairy_tale
f Geschichte Geschichten story
m Aufsatz Aufsätze essay
f Einladung Einladungen invitation
f Rechnung Rechnungen bill
""",
    "thing": """
f Tasche Taschen bag
m Stuhl Stühle chair
f Lampe Lampen lamp
m Schlüssel Schlüssel key
m Spiegel Spiegel mirror
m Koffer Koffer suitcase
m Regenschirm Regenschirme umbrella
m Ball Bälle ball
f Gabel Gabeln fork
m Löffel Löffel spoon
n Messer Messer knife
m Teller Teller plate
f Tasse Tassen cup
n Glas Gläser glass
f Flasche Flaschen bottle
m Korb Körbe basket
m Hammer Hämmer hammer
f Decke Decken blanket
n Kissen Kissen pillow
f Kerze Kerzen candle
n Bild Bilder picture
f Vase Vasen vase
m Ring Ringe ring
n Geschenk Geschenke present
f Puppe Puppen doll
m Bleistift Bleistifte pencil
n Heft Hefte notebook
f Leiter Leitern ladder
m Teppich Teppiche carpet
n Seil Seile rope
""",
    "clothes": """
m Mantel Mäntel coat
n Hemd Hemden shirt
m Rock Röcke skirt
f Jacke Jacken jacket
m Hut Hüte hat
m Schal Schals scarf
m Pullover Pullover sweater
n Kleid Kleider dress
m Gürtel Gürtel belt
f Bluse Blusen blouse
f Mütze Mützen cap
f Krawatte Krawatten tie
""",
    "machine": """
n Fahrrad Fahrräder bicycle
n Auto Autos car
m Computer Computer computer
n Radio Radios radio
f Uhr Uhren clock
f Waschmaschine Waschmaschinen washing_machine
m Fernseher Fernseher television
f Kamera Kameras camera
n Telefon Telefone telephone
m Drucker Drucker printer
m Kühlschrank Kühlschränke refrigerator
n Motorrad Motorräder motorcycle
m Traktor Traktoren tractor
""",
    "device": "+ Computer Radio Waschmaschine Fernseher Kamera Drucker Lampe",
    "opening": """
n Fenster Fenster window
f Tür Türen door
n Tor Tore gate
f Kiste Kisten box
m Schrank Schränke cupboard
f Schublade Schubladen drawer
m Umschlag Umschläge envelope
""",
    "fragile": "+ Glas Tasse Teller Vase Flasche Spiegel Fenster Ei",
    "animal": """
m Hund Hunde dog
f Katze Katzen cat
n Pferd Pferde horse
f Kuh Kühe cow
m Vogel Vögel bird
n Schaf Schafe sheep
m Esel Esel donkey
f Ziege Ziegen goat
n Huhn Hühner chicken
f Ente Enten duck
f Maus Mäuse mouse
w Hase Hasen hare
w Bär Bären bear
w Elefant Elefanten elephant
w Löwe Löwen lion
w Affe Affen monkey
m Frosch Frösche frog
f Gans Gänse goose
m Fuchs Füchse fox
m Wolf Wölfe wolf
n Schwein Schweine pig
""",
    "building": """
n Haus Häuser house
f Brücke Brücken bridge
m Turm Türme tower
f Kirche Kirchen church
n Schloss Schlösser castle
n Museum Museen museum
f Schule Schulen school
n Theater Theater theatre
n Krankenhaus Krankenhäuser hospital
n Rathaus Rathäuser town_hall
f Fabrik Fabriken factory
n Hotel Hotels hotel
f Bibliothek Bibliotheken library
n Stadion Stadien stadium
m Flughafen Flughäfen airport
""",
    "room": """
n Zimmer Zimmer room
f Küche Küchen kitchen
m Keller Keller cellar
n Büro Büros office
f Wohnung Wohnungen flat
f Garage Garagen garage
n Badezimmer Badezimmer bathroom
n Wohnzimmer Wohnzimmer living_room
m Dachboden Dachböden attic
""",
    "question": """
f Frage Fragen question
n Problem Probleme problem
f Aufgabe Aufgaben task
n Rätsel Rätsel riddle
f Regel Regeln rule
m Satz Sätze sentence
m Fehler Fehler mistake
m Plan Pläne plan
""",
    "puzzle": "+ Problem Aufgabe Rätsel",
    "speech": "+ Frage Satz Regel",
    "asked": "+ Frage Brief Einladung",
    "event": """
n Fest Feste party
f Reise Reisen trip
n Treffen Treffen meeting
n Konzert Konzerte concert
f Hochzeit Hochzeiten wedding
m Ausflug Ausflüge excursion
f Prüfung Prüfungen exam
""",
}
