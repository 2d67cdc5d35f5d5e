"""The corpus's own names, adjectives, states, comparatives and cities."""

from __future__ import annotations

FEMALE = (
    "Anna Maria Julia Laura Sarah Lena Clara Eva Nina Sofia Paula Marta Helga Ingrid Petra Karin "
    "Emma Hannah Olga Katharina Monika Sabine Teresa Lucia"
)
MALE = (
    "Paul Peter Jonas Lukas David Karl Otto Emil Anton Martin Stefan Michael Daniel Simon Tobias "
    "Jan Erik Robert Georg Oskar Leo Ben Philipp Walter"
)

# Relatives, as noun lines.
FAMILY = """
m Bruder Brüder brother
f Schwester Schwestern sister
m Vater Väter father
f Mutter Mütter mother
m Sohn Söhne son
f Tochter Töchter daughter
m Onkel Onkel uncle
f Tante Tanten aunt
m Großvater Großväter grandfather
f Großmutter Großmütter grandmother
w Neffe Neffen nephew
f Nichte Nichten niece
"""

ADJECTIVES = {
    "person": (
        "alt old,jung young,groß tall,freundlich friendly,nett nice,fleißig hard-working,faul lazy,"
        "klug clever,berühmt famous,reich rich,arm poor,mutig brave,höflich polite,"
        "neugierig curious,ruhig calm,streng strict,schüchtern shy,ehrlich honest,müde tired"
    ),
    "food": "frisch fresh,groß big,klein small,warm warm,kalt cold,lecker delicious,billig cheap,"
    "teuer expensive",
    "text": "lang long,kurz short,interessant interesting,langweilig boring,neu new,alt old,"
    "wichtig important,schwierig difficult,lustig funny,traurig sad",
    "thing": "neu new,alt old,groß big,klein small,rot red,blau blue,grün green,gelb yellow,"
    "schwarz black,weiß white,braun brown,grau grey,teuer expensive,billig cheap,schwer heavy,"
    "leicht light,schön beautiful,hässlich ugly,schmutzig dirty,sauber clean",
    "animal": "jung young,alt old,groß big,klein small,schwarz black,weiß white,braun brown,"
    "wild wild,hungrig hungry,schnell fast,langsam slow,müde tired",
    "building": "alt old,neu new,groß big,klein small,modern modern,berühmt famous,"
    "schön beautiful,hässlich ugly,hoch high",
    "room": "groß big,klein small,dunkel dark,hell bright,kalt cold,leer empty,neu new",
    "question": "schwierig difficult,einfach simple,wichtig important,interessant interesting,"
    "neu new,lustig funny",
    "event": "lang long,kurz short,wichtig important,groß big,schön beautiful",
}
ADJECTIVE_CLASS = {
    "clothes": "thing", "machine": "thing", "device": "thing", "opening": "thing",
    "fragile": "thing", "puzzle": "question", "speech": "question", "asked": "text",
}  # fmt: skip

# Predicative only: what somebody feels, and how somebody is.
FEELINGS = (
    "glücklich happy,traurig sad,stolz proud,wütend angry,nervös nervous,zufrieden satisfied,"
    "enttäuscht disappointed,überrascht surprised,froh glad,besorgt worried"
)
STATES = (
    "müde tired,krank ill,hungrig hungry,durstig thirsty,erschöpft exhausted,traurig sad,"
    "wütend angry,nervös nervous,enttäuscht disappointed,allein alone"
)
# German, its comparative, English, its comparative; what can be compared.
COMPARED = """
alt älter old older person animal thing building
jung jünger young younger person animal
groß größer tall taller person
groß größer big bigger animal thing building
klein kleiner small smaller animal thing building
schnell schneller fast faster animal
langsam langsamer slow slower animal
klug klüger clever cleverer person
reich reicher rich richer person
mutig mutiger brave braver person
höflich höflicher polite politer person
freundlich freundlicher friendly friendlier person
teuer teurer expensive more_expensive thing clothes machine
billig billiger cheap cheaper thing clothes machine
schwer schwerer heavy heavier thing animal
leicht leichter light lighter thing
schmutzig schmutziger dirty dirtier clothes machine
interessant interessanter interesting more_interesting text
langweilig langweiliger boring more_boring text
wichtig wichtiger important more_important question text
schwierig schwieriger difficult more_difficult question
"""
CITIES = """
Berlin=Berlin München=Munich Köln=Cologne Wien=Vienna Zürich=Zurich Genf=Geneva Rom=Rome
Mailand=Milan Venedig=Venice Florenz=Florence Neapel=Naples Prag=Prague Warschau=Warsaw
Kopenhagen=Copenhagen Brüssel=Brussels Lissabon=Lisbon Athen=Athens Hamburg=Hamburg Paris=Paris
London=London Madrid=Madrid Nürnberg=Nuremberg Straßburg=Strasbourg Dresden=Dresden Bremen=Bremen
Leipzig=Leipzig Budapest=Budapest Oslo=Oslo Stockholm=Stockholm Helsinki=Helsinki Dublin=Dublin
Moskau=Moscow Kairo=Cairo Peking=Beijing Tokio=Tokyo Edinburgh=Edinburgh
"""
