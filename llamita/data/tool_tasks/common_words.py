"""Common English words, for exercises and for words spliced from them; none is a thing of the test
split's notes and labels.
"""

from __future__ import annotations

_WORDS = """
able accept account across action add admit adult advice affair afraid again age agree air
alarm alive allow alone aloud altar always ambition amount ancient angel anger angry
animal ankle anxious apart appear apply argue arm armour army arrange arrest arrive arrow
art ash ashes asleep attack attend aunts autumn avoid awake awful bad bait balance banish
banner bare bargain bark base basic battle beach bear beard beast beat beauty become bee
beggar begin behave belief belong bend bet betray bird birth bite blade blame blaze bleed
bless blind block blood bloom blow board boast body bold bone border bore born bottom
bound bow boy brain branch brave breach breast breath breathe breed bribe bride brief
bright broad brow build bull bullet burden burn burst bury bush business busy calm camp
canvas careful cargo carve case castle cat cattle cause cave cease century certain chance
change chaos charge charm chase cheat cheek cheer chest chief child choice chosen circle
citizen city claim clay clear clever cliff cloak close cloth cloud clown coal coast colour
column combat comfort command common company complain concert condemn confess conquer
consent control copper coral corner corpse cost council count country couple courage
coward craft crash crawl create creature creep crew crime crop cross crowd crown cruel cry
cure curious curse curve custom cut dagger damage damp danger dare dead deaf deal dear
death debt decay decide deer defeat defend delay delight demand deny depart depth desert
deserve desire despair destroy device devil dew diamond die differ dig dirt disease dish
distance ditch divide divine dog dome donkey doubt dove down drag dragon dread dream drift
drink drop drown duck due duel dull dumb duty dwarf dwell eager eagle ear earl earn earth
ease east echo edge effect effort eight either elbow elder elect embrace emperor empire
end enemy energy enjoy enter entire envy equal error escape estate eternal even event evil
exact example excuse exile expect expense express eye fable face fact fade fail faint fair
faith fall false fame familiar far farewell fashion fast fat fatal fate fault favour fear
feast feather feed feel fellow fever few field fierce fifth fight figure fill finger firm
fist fit five flag flame flash flat flatter flesh flight float flock flood flow flower fly
foe fog fold folk fool foolish foot forbid force forehead foreign forget forgive fortune
forty forward foul found fountain four fox fraud free freeze fright frost frown fruit full
funny fury future gain gallant gap gather gaze gentle ghost girl glad glance glass glory
go god gold govern grain grand grant grape grass grave gravity greedy grief grin grip
groan ground group grove grow guard guess guilt guilty gulf gun guy habit hair half
handsome hang happen happy harm harp harsh harvest haste hate haunt hawk head heal health
heap hear heart heat heaven heel height heir hell helmet herb herd hero hide hill hint hip
history hit hold hole hollow holy home honest honour hood hoof hook hope horn horror horse
host hour house human humble humour hundred hunger hunt hurry hurt idea idle image
impossible inch income indeed infant inform injury inn innocent insect insult invade iron
island issue itch ivory jail jealous jest jewel job join joke journey joy jump junior jury
just justice keen key kick kill kind kingdom kiss knee kneel knight knock knot know
knowledge labour lack lad lake lamb lame land language large laugh laurel law lazy lead
leaf lean leap least leave leg legend length level liar liberty lid lie life lift like
limb limit line lion lip liquid little live liver lodge lofty log lonely lose loss lost
love loyal luck lunatic lust mad magic main major maker male malice manner mantle march
market marriage marry marsh mass master match mate matter meadow meal mean meat medal
medicine meek mellow melt member memory merry message metal middle might mild mile
military mind mine minister minor minute miracle misery mist mistake mistress mix mock
modest moment monarch money monkey monster mood moon moral mortal moss motion mount
mountain mourn mouth much mud murder murmur muscle muse music mystery naked name nation
native nature naughty navy neat neck need needle neglect neither nerve net never news nine
noble nobody nod noise none normal north nose note nothing notice number nut nymph oath
obey object obtain occasion ocean odd offence offend offer often olive open opinion oppose
oracle orchard ordinary organ orphan ought outside owl own owner ox oyster pace page pain
pair palace pale palm panic paradise pardon parent park part pass passage passion past
paste patience patient pause peace peak pearl peasant peer pen penalty penny people
perfect perform perfume perhaps peril period person phrase physic picture piece pig
pilgrim pillar pine pirate pit pity place plague planet plant play pleasant please
pleasure plenty plot plough pluck point poison pole polite poor pope popular port position
possess pour poverty powder power praise pray precious prefer present press prevent prey
price pride prince princess prison private prize problem profit promise proof proper
prosper protect proud prove proverb public pull pulse punish pupil pure purpose purse
pursue push quality quarrel quarter quest question quit quite quote rabbit race rage rain
raise ram range rank rascal rat rate rather raven reach ready realm reason rebel receive
record refuse region regret reign rein reject rejoice relief religion rely remain remember
remorse remove repeat reply rescue respect result revenge reward rhyme rib rich riddle
riot rise risk rival road roar rob robe rock rogue roll romance root row royal rub rude
ruin rule rush rust sacred sad saint sake same sample sandy satisfy savage say scar scarce
scent scorn scratch scream sea seal search season seat seed seek seem seize seldom select
self senate sense sentence serious sermon serpent servant serve seven several severe shade
shadow shake shallow shame shape sheep sheet shell shelter shield shine ship shock shoot
shop shore shoulder shout shut shy sick side siege sigh sight silent silly sin sing single
sit six size skill skin skull sky slave slip smart smell smile smoke snake snow social
soil sole solemn sore sorrow sorry sort soul sound source south sovereign space spark
speed spell spend spider spirit spite split spoil sport spot spread spur stab staff stage
stain stair stand star start state stay steal steel steep stem step stern stick stiff
still sting stir stock stomach stop storm stranger stream street strength stress strike
strip struggle study stuff stupid subject success such sudden suffer suit sum supply
suppose sure surface surprise surrender suspect swallow swan swear sweat swell swift sword
sympathy system tail tale tall tame target task taste tax teach tear temper temple tempt
ten tender term terror theft theme then thief thing think thirst thirty thorn thousand
threat three throat throne throw thumb thunder tide tiger tight time tired title toe
together tomb tone tongue tooth top torment total touch tough tour toward tower trace
track trade tragedy traitor tread treason treasure treat tree tremble tribe trick trip
triumph trouble truce true trust truth tune turn twelve twenty twice twin twist two tyrant
unit unite unity universe unless until upon upper upset urge use vain valley value vanish
vary vault veil vein venture verse very vessel victim victory view villain violet virgin
virtue visible vision voice void volume vote vow voyage vulture wage wagon waist wander
want war warrior waste wave wax weak wealth weapon wear weary weather weave weed weep
weigh weight west whale wheat while whip whisper wicked widow wild will willow win wind
wing wipe wise wish wit witch witness wolf woman wonder word world worm worry worse
worship worst worth wound wrath wreath wreck wrinkle wrist yard yeoman yes yesterday yield
yoke young youth zeal zero zone
"""

COMMON: tuple[str, ...] = tuple(_WORDS.split())
