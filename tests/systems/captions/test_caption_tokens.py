"""Words of captions: by hand, and against the Java program of the COCO evaluation where it is there."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from vsemb.systems.captions.caption_tokens import caption_tokens

#: Captions as people write them, which both programs split alike.
WRITTEN = (
    "एक कुत्ता समुद्र तट पर दौड़ रहा है। रात-दिन घर-बार १२वीं ३.५",
    "কুকুর দৌড়াচ্ছে ছোটো বল, কড়ি",
    "கடற்கரையில் ஓடும் நாய்",
    "ชายสองคนวิ่งบนชายหาด",
    "كَلْبٌ يَجْرِي عَلَى الشَّاطِئِ، می\u200cرود",
    "כֶּלֶב רָץ עַל הַחוֹף; שָׁלוֹם-עוֹלָם",
    "một con chó đang chạy, un café à l'été, naïve-ly",
    "개가 해변을 달린다 犬が浜辺を走る。 ಕನ್ನಡ ភាសាខ្មែរ",
    "a dog 🐶 and ❤️ 3️⃣ 👨‍👩‍👧 👍🏽 🇫🇷 x☕️y葛\U000e0100",
    "½ of x² costs 5€ or £3 … #beach @home soft\u00adhyphen",
    "A dog's ball isn't here, don't they say; we've left -- I'd go!",
    'The "quick" (brown) fox ... jumps over a well-known, two-year-old t-shirt?',
    "I cannot come. He is gonna run 'cause he 's late . Gimme 3,000 of 5:30",
    "Mr. Smith of St. John's in the U.S. wears a #23 A&M jersey on rock 'n' roll",
    "dogs' bowls and the boys’ toys – it’s “new” café — o'clock",
    "A man!? yes!!! no , I can't , won't , shan't .",
    "black and/or white , 1/2 of statefarm.com , at 10 % & more = less",
    "at&t isn't AT&T",
    "",
    " . ",
    "'tis ma'am 's turn",
)
# Of pycocoevalcap's tokenizer/ptbtokenizer.py.
DROPPED = ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-"]
DROPPED += [".", "?", "!", ",", ":", "-", "--", "...", ";"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man isn't here.", "a man is n't here"),
        ("The dogs' and the dog's ball", "the dogs and the dog 's ball"),
        ("Can't, won't; CANNOT!", "ca n't wo n't can not"),
        ("a t-shirt, a close-up - a U-turn -- up", "a t-shirt a close-up a u-turn up"),
        ("“curly” ‘quotes’ … don’t", "curly quotes do n't"),
        ("one\ntwo\tthree\0four\u2028five", "one two three four five"),
        ("at 3.50 for 3,000.", "at 3.50 for 3,000"),
        ("dont 's", "dont 's"),
        ("a ||| b", "a | | | b"),
        ("Ein Hund läuft; 犬", "ein hund läuft 犬"),
        # What the Java program gives, so that these hold where it is not installed. It drops joiners, variation
        # selectors and emoji, and a hyphen does not join words with marks.
        ("एक कुत्ता दौड़ रहा है।", "एक कुत्ता दौड़ रहा है ।"),
        ("रात-दिन घर-घर १२वीं", "रात दिन घर-घर १२व ीं"),
        ("ชายสองคนวิ่งบนชายหาด", "ชายสองคนวิ่งบนชายหาด"),
        ("كَلْبٌ، می\u200cرود", "كَلْبٌ ، می رود"),
        ("כֶּלֶב רָץ", "כֶּלֶב רָץ"),
        ("a dog 🐶 ❤️ 3️⃣ 👨‍👩‍👧", "a dog ❤ 3"),
        ("un cafe\u0301 à l'été", "un café à l'été"),
        ("½ x² 5€ #beach @home so\u00adft", "1/2 x ² 5 $ #beach @home soft"),
        ("?.,!'", ""),
        ("", ""),
    ],
)
def test_by_hand(text: str, words: str) -> None:
    assert caption_tokens(text) == words.split()


def test_split_again_gives_the_same() -> None:
    for text in (WRITTEN[0], *WRITTEN[4:6]):
        tokens = caption_tokens(text)
        assert caption_tokens(" ".join(tokens)) == tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a" * 100_000, ["a" * 100_000]),
        ("a-" * 50_000, ["a-" * 49_999 + "a"]),
        ("a'" * 50_000, ["a"] * 50_000),
        ("'" * 100_000, []),
        ("1," * 50_000, ["1," * 49_999 + "1"]),
    ],
    ids=["letters", "hyphens", "apostrophes", "quotes", "numbers"],
)
def test_long_texts(text: str, words: list[str]) -> None:
    assert caption_tokens(text) == words


def test_equals_the_java_program() -> None:
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or shutil.which("java") is None:
        pytest.skip("pycocoevalcap or Java is not installed")
    jar = Path(list(spec.submodule_search_locations or ())[0]) / "tokenizer" / "stanford-corenlp-3.4.1.jar"
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", str(jar)]
    command += ["edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    given = "".join(f"{text}\n" for text in WRITTEN).encode()
    done = subprocess.run(command, input=given, capture_output=True, check=True, timeout=120)
    lines = done.stdout.decode().split("\n")[: len(WRITTEN)]
    java = [[word for word in line.split() if word not in DROPPED] for line in lines]
    assert [caption_tokens(text) for text in WRITTEN] == java
