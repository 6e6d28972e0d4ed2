"""British spelling made American, by rules over word lists of our own.

A rule is generous with endings, because a word that nobody writes does no harm: it is never met.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product

_VERBS_IN_ISE = """
accessor acclimat actual aggrand agon allegor alphabet american amort anglic annual anonym antagon apolog appet aromat
atom author bapt bowdler brutal burglar canal cannibal canon capital caramel carbon categor cauter central character
christian circular civil collectiv colon commercial compartmental computer conceptual container contextual criminal
critic crystall custom decentral decimal decriminal deemphas dehuman demagnet demilitar demobil democrat demon demoral
denational deodor depersonal depressur deput desensit destabil digit disorgan dogmat dramat econom editorial emotional
empath emphas energ epitom equal erotic eulog euthan evangel exorc extempor external factor familiar fantas federal
femin fertil fetish fictional final formal fossil fratern galvan general ghetto glamor global harmon homogen hospital
human hybrid hypnot hypothes ideal idol immobil immortal immun incentiv individual industrial initial institutional
intellectual internal international ion italic item jeopard legal legitim liberal lion liquid lobotom local magnet
marginal material maxim mechan memor memorial mesmer metabol metastas militar mineral miniatur minim mobil modern
moistur monet monopol moral motor municipal mytholog nasal national natural neutral normal notar novel optim organ
ostrac overemphas oxid particular pasteur patron pauper pedestrian penal personal philosoph plagiar plural polar polem
politic polymer popular pressur priorit privat problemat professional propagand proselyt psycholog public pulver
radical random rational real recogn regional regular reorgan revital revolution rhapsod ritual romantic rubber sanit
satir scandal schemat scrutin secular sensational sensit sentimental serial sermon sexual social sodom solemn special
stabil standard steril stigmat strateg subsid suburban summar symbol sympath synchron synthes systemat tantal tempor
tender terror theor total transistor traumat trivial tyrann unauthor uncivil underutil union unorgan unrecogn urban
util vandal vapor verbal victim visual vital vocal volatil vulcan vulgar weapon western winter woman
"""
_VERBS_IN_YSE = "anal breathal catal dial electrol hydrol paral psychoanal"
_NOUNS_IN_OUR = """
arb ard arm behavi belab cand clam clang col demean discol disfav dishon enam endeav fav ferv flav harb hon hum lab
misbehavi misdemean multicol neighb od parl ranc rig rum sav savi splend succ tum unfav unsav val vap vig watercol
"""
_VERBS_IN_L = """
backpedal bedevil bejewel bevel cancel carol channel chisel counsel cudgel dial disembowel dishevel drivel duel enamel
equal flannel fuel funnel gambol grovel gruel hovel impanel imperil initial jewel kennel label level libel marshal
marvel medal model panel parcel pedal pencil pummel quarrel ravel refuel remodel revel rival shovel shrivel signal
snivel snorkel spiral squirrel stencil swivel tassel teetotal total towel trammel travel trial trowel tunnel unequal
unravel unrival untrammel victual weasel yodel
"""
_NOUNS_IN_RE = """
accout amphitheat calib cent centilit centimet decilit epicent fib goit kilolit kilomet lit louv lust meag met micromet
millilit millimet mit nanomet och reconnoit sab saltpet scept sepulch somb spect theat tit
"""

# Stems, their British and American letters, and the endings that follow; `-` is the bare word.
_FAMILIES = (
    (_VERBS_IN_ISE, "is", "iz", "e ed er ers es ing ingly able ably ation ational ations"),
    (_VERBS_IN_YSE, "ys", "yz", "e ed er ers es ing"),
    (
        _NOUNS_IN_OUR,
        "our",
        "or",
        "- s ed ing er ers able ably al ally ful fully hood hoods ies ite ites itism less ly y",
    ),
    (_VERBS_IN_L, "l", "", "ed ing er ers ingly ist ists ous ously"),
    (_NOUNS_IN_RE, "re", "er", "- s fold folds goer goers piece pieces glass board boards ment ments"),
    (_NOUNS_IN_RE, "r", "er", "ed ing"),
    ("anal catal dial epil monol prol", "ogue", "og", "- s"),
    ("catal", "ogu", "og", "ed ing er ers"),
    ("aero centi deca kilo milli - pro", "gramme", "gram", "- s"),
    ("def lic off pret", "ence", "ense", "- s less"),
    ("appa disti enro enthra fulfi insti insta", "l", "ll", "- s ment ments"),
    ("ski wi", "lful", "llful", "- ly ness"),
    ("m rem sm", "ould", "old", "- s ed er ered ering ers ier iest ing ings y"),
)

# British, American, and endings that both take.
_WORDS = """
aeon eon s
aeroplane airplane s
aesthet esthet e es ic ics ically
ageing aging
aluminium aluminum
anaem anem ia ic
anaesth anesth esia etic etics etist etists
anaesthetis anesthetiz e ed es ing
artefact artifact s
archaeolog archeolog ical ically ist ists y
axe ax
baulk balk s ed ing
caesarean cesarean s
cheque check s book books
chequered checkered
cosi cozi er es est ly ness
cosy cozy
councillor councilor s
counsellor counselor s
cruell cruel er est
diarrhoea diarrhea
disc disk s
draught draft s board boards ier iest sman smanship smen swoman swomen y
encyclopaed encycloped ia ias ic
faec fec al es
foet fet al id us uses
gaol jail s bird birds break breaks ed er ers ing
gipsies gypsies
gipsy gypsy
gonorrhoea gonorrhea
grey gray s ed er est ing ish ness
gynaecolog gynecolog ical ist ists y
haem hem atological atologist atologists atology oglobin ophilia ophiliac ophiliacs
haemorrhag hemorrhag e ed es ing
haemorrhoid hemorrhoid s
homoeopath homeopath s ic y
jewellery jewelry
judgement judgment s
kerb curb s
leukaemia leukemia
likeable likable
manoeuvr maneuver ed ing ings ability able
manoeuvre maneuver s
mediaeval medieval
moult molt s ed ing
moustache mustache s d
oedema edema
oesophagus esophagus es
oestrogen estrogen s
orthopaedic orthopedic s
outmanoeuvr outmaneuver ed ing
outmanoeuvre outmaneuver s
paediatric pediatric s ian ians
paedophil pedophil e es ia
palaeolithic paleolithic
palaeontolog paleontolog ist ists y
plough plow s ed ing man men share shares
practis practic e ed es ing
primaeval primeval
pyjama pajama s
sceptic skeptic s al ally ism
snowplough snowplow s
storey story
storeys stories
sulph sulf ate ates ide ides ur urous uric
syphon siphon s ed ing
tonne ton s
toxaemia toxemia
tranquillis tranquiliz e ed er ers es ing
tyre tire s
woollen woolen s
woolly wooly
worshipp worship ed er ers ing
yoghurt yogurt s
"""


@cache
def american_spellings() -> dict[str, str]:
    """British spelling to American, for every word that the rules make."""
    return dict(_family_pairs()) | dict(_word_pairs())


def _family_pairs() -> Iterator[tuple[str, str]]:
    for stems, british, american, endings in _FAMILIES:
        for stem, ending in product(_listed(stems), _listed(endings)):
            yield f"{stem}{british}{ending}", f"{stem}{american}{ending}"


def _word_pairs() -> Iterator[tuple[str, str]]:
    for line in _WORDS.strip().splitlines():
        british, american, *endings = line.split()
        yield british, american
        yield from ((british + ending, american + ending) for ending in endings)


def _listed(words: str) -> list[str]:
    return ["" if word == "-" else word for word in words.split()]
