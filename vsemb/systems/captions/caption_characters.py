"""Classes of characters of Stanford's PTBTokenizer, which tokenizes for the COCO caption evaluation.

Found by asking the program (version 3.4.1, of pycocoevalcap) about each character of the Basic Multilingual Plane, here
written *: `qw*rt` is one word, three tokens, or two words without the character; `qw*t-rt` is one word or three tokens.
A test asks again where Java is installed. The program follows Unicode 6 and drops the vowel signs of some scripts, such
as Kannada, Khmer and Burmese. It drops all characters outside the plane, so most emoji give zero words.
"""

from __future__ import annotations

#: Letters and digits, hexadecimal, from U+00A1. A hyphen between two of them joins words.
LETTERS = """
aa b5 ba c0-d6 d8-f6 f8-2c1 2c6-2d1 2e0-2e4 2ec 2ee 370-374 376-377 37a-37d 386 388-38a 38c 38e-3a1 3a3-3f5
3f7-481 48a-527 531-556 559 561-587 5d0-5ea 5f0-5f2 620-64a 660-669 66e-66f 671-6d3 6d5 6e5-6e6 6ee-6fc 6ff 710
712-72f 74d-7a5 7b1 7c0-7ea 7f4-7f5 7fa 800-815 81a 824 828 840-858 8a0 8a2-8ac 904-939 93d 950 958-961 966-96f
971-977 979-97f 985-98c 98f-990 993-9a8 9aa-9b0 9b2 9b6-9b9 9bd 9ce 9dc-9dd 9df-9e1 9e6-9f1 a05-a0a a0f-a10
a13-a28 a2a-a30 a32-a33 a35-a36 a38-a39 a59-a5c a5e a66-a6f a72-a74 a85-a8d a8f-a91 a93-aa8 aaa-ab0 ab2-ab3
ab5-ab9 abd ad0 ae0-ae1 ae6-aef b05-b0c b0f-b10 b13-b28 b2a-b30 b32-b33 b35-b39 b3d b5c-b5d b5f-b61 b66-b6f b71
b83 b85-b8a b8e-b90 b92-b95 b99-b9a b9c b9e-b9f ba3-ba4 ba8-baa bae-bb9 bd0 be6-bef c05-c0c c0e-c10 c12-c28
c2a-c33 c35-c39 c3d c58-c59 c60-c61 c66-c6f c85-c8c c8e-c90 c92-ca8 caa-cb3 cb5-cb9 cbd cde ce0-ce1 ce6-cef
cf1-cf2 d05-d0c d0e-d10 d12-d3a d3d d4e d60-d61 d66-d6f d7a-d7f d85-d96 d9a-db1 db3-dbb dbd dc0-dc6 e01-e30
e32-e33 e40-e46 e50-e59 e81-e82 e84 e87-e88 e8a e8d e94-e97 e99-e9f ea1-ea3 ea5 ea7 eaa-eab ead-eb0 eb2-eb3 ebd
ec0-ec4 ec6 ed0-ed9 edc-edf f00 f20-f29 f40-f47 f49-f6c f88-f8c 1000-102a 103f-1049 1050-1055 105a-105d 1061
1065-1066 106e-1070 1075-1081 108e 1090-1099 10a0-10c5 10c7 10cd 10d0-10fa 10fc-1248 124a-124d 1250-1256 1258
125a-125d 1260-1288 128a-128d 1290-12b0 12b2-12b5 12b8-12be 12c0 12c2-12c5 12c8-12d6 12d8-1310 1312-1315 1318-135a
1380-138f 13a0-13f4 1401-166c 166f-167f 1681-169a 16a0-16ea 1700-170c 170e-1711 1720-1731 1740-1751 1760-176c
176e-1770 1780-17b3 17d7 17dc 17e0-17e9 1810-1819 1820-1877 1880-18a8 18aa 18b0-18f5 1900-191c 1946-196d 1970-1974
1980-19ab 19c1-19c7 19d0-19d9 1a00-1a16 1a20-1a54 1a80-1a89 1a90-1a99 1aa7 1b05-1b33 1b45-1b4b 1b50-1b59 1b83-1ba0
1bae-1be5 1c00-1c23 1c40-1c49 1c4d-1c7d 1ce9-1cec 1cee-1cf1 1cf5-1cf6 1d00-1dbf 1e00-1f15 1f18-1f1d 1f20-1f45
1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb
1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2071 207f 2090-209c 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d
212f-2139 213c-213f 2145-2149 214e 2183-2184 2c00-2c2e 2c30-2c5e 2c60-2ce4 2ceb-2cee 2cf2-2cf3 2d00-2d25 2d27 2d2d
2d30-2d67 2d6f 2d80-2d96 2da0-2da6 2da8-2dae 2db0-2db6 2db8-2dbe 2dc0-2dc6 2dc8-2dce 2dd0-2dd6 2dd8-2dde 2e2f
3005-3006 3031-3035 303b-303c 3041-3096 309d-309f 30a1-30fa 30fc-30ff 3105-312d 3131-318e 31a0-31ba 31f0-31ff
3400-4db5 4e00-9fcc a000-a48c a4d0-a4fd a500-a60c a610-a62b a640-a66e a67f-a697 a6a0-a6e5 a717-a71f a722-a788
a78b-a78e a790-a793 a7a0-a7aa a7f8-a801 a803-a805 a807-a80a a80c-a822 a840-a873 a882-a8b3 a8d0-a8d9 a8f2-a8f7 a8fb
a900-a925 a930-a946 a960-a97c a984-a9b2 a9cf-a9d9 aa00-aa28 aa40-aa42 aa44-aa4b aa50-aa59 aa60-aa76 aa7a aa80-aaaf
aab1 aab5-aab6 aab9-aabd aac0 aac2 aadb-aadd aae0-aaea aaf2-aaf4 ab01-ab06 ab09-ab0e ab11-ab16 ab20-ab26 ab28-ab2e
abc0-abe2 abf0-abf9 ac00-d7a3 d7b0-d7c6 d7cb-d7fb f900-fa6d fa70-fad9 fb00-fb06 fb13-fb17 fb1d fb1f-fb28 fb2a-fb36
fb38-fb3c fb3e fb40-fb41 fb43-fb44 fb46-fbb1 fbd3-fd3d fd50-fd8f fd92-fdc7 fdf0-fdfb fe70-fe74 fe76-fefc ff10-ff19
ff21-ff3a ff41-ff5a ff66-ffbe ffc2-ffc7 ffca-ffcf ffd2-ffd7 ffda-ffdc
"""

#: Other characters of words: combining marks, above all.
MARKS = """
2c2-2c5 2d2-2df 2e5-2eb 2ed 2ef-36f 375 378-379 384-385 3f6 483-487 55a-55f 58a 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7
615-61a 64b-65e 670 6d6-6e4 6e7-6ed 6fd-6fe 70f 711 730-74c 7a6-7b0 7eb-7f3 900-903 93c 93e-94e 951-955 962-963
981-983 9bc 9be-9c4 9c7-9c8 9cb-9cd 9d7 9e2-9e3 a01-a03 a3c a3e-a4f a81-a83 abc abe-acf b82 bbe-bc2 bc6-bc8
bca-bcd c01-c03 c3e-c56 d3e-d44 d46-d48 e31 e34-e3a e47-e4e eb1 eb4-ebc ec8-ecd 2010-2011
"""

#: Characters that are a token. All others end a word and are dropped.
SYMBOLS = """
a1 a5-a9 ac ae-b4 b6-b9 bf d7 f7 37e 387 589 5be 5c0 5c3 5c6 5f3-5f4 600-603 606-60c 614 61b 61e-61f 66a 66d 6d4
700-70d 7f6-7f8 964-965 e3f e4f 1fbd 2016-2017 201a 201e-2023 2030-2038 203b 203e-2042 2044 2070 2074-207e
2080-208e 20a4 2100-2101 2103-2106 2108-2109 2114 2116-2118 211e-2123 2125 2127 2129 212e 213a-213b 2140-2144
214a-214d 214f 2155-215e 2190-2bff 3001-3002 3012 30fb ff01-ff0f ff1a-ff20 ff3b-ff40 ff5b-ff65 ffe0-ffe1 ffe5-ffe6
"""


def character_class(ranges: str) -> str:
    """Return code points as the content of a character class of a regular expression.

    Example:

    >>> character_class("e0-e2 e9")
    'à-âé'
    """
    pairs = (pair.split("-") for pair in ranges.split())
    return "".join("-".join(chr(int(code, 16)) for code in pair) for pair in pairs)
