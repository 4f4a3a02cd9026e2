"""Read the orientation of a JPEG or PNG from its bytes, in graph; decoders of pixels ignore it.

The orientation is that of EXIF: of the APP1 segments before the first scan of a JPEG, or of the `eXIf` chunk of a PNG.
If EXIF has none, it is that of XMP. Pillow's `getexif` follows the same rule, so a file means the same in Python.
"""

from __future__ import annotations

import zlib

import numpy as np

from vsemb.ops.tensorflow import tf

# Bytes of a JPEG in which its tables and its first scan are found, unless it has further segments.
_TABLES = 1024
# The signature of a PNG and its chunk IHDR take 33 bytes.
_IHDR_END = 33
# Maximum number of segments or chunks that are read; an image with more is rejected.
_MOST = 1000

_XMP_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_PNG = b"XML:com.adobe.xmp\0"
_RAW_EXIF = b"Raw profile type exif\0"
# Maximum bytes of a compressed text of a PNG; they decompress to 64 MB at most.
_COMPRESSED = 1 << 16
_ORIENTATION = 0x0112
# No bytes, compressed.
_NOTHING_PACKED = zlib.compress(b"")


# An `If` inside a function is lowered to switches, and each node of the branch that is not taken costs time. This keeps
# rare branches as one node.
rare = tf.function(autograph=False, experimental_attributes={"_noinline": True})


def refuse_unless(condition: tf.Tensor, message: str) -> tf.Operation:
    """Return an operation that fails with a message. `tf.debugging.Assert` adds two functions, to trace and to load."""
    return tf.raw_ops.Assert(condition=condition, data=[message])


def jpeg_orientation(data: tf.Tensor, components: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Read the orientation of a JPEG, and for four components whether it has Adobe's marker.

    Args:
        data: () string.
        components: () int64, number of components of the image.

    Returns:
        `(orientation, adobe)`: () int32 from 1 to 8, 1 where none is stated; () bool.

    Example:

    >>> orientation, _ = jpeg_orientation(tf.io.encode_jpeg(tf.zeros((2, 2, 3), tf.uint8)), 3)
    >>> int(orientation)
    1
    """
    # A JPEG without metadata consists of tables and a scan, after the segment JFIF of 16 bytes or directly. Walking
    # over its segments would take a tenth of the time of decoding.
    head = tf.strings.substr(data, 2, _TABLES)
    start = tf.where(_starts(head, b"\xff\xe0\x00\x10"), 18, 0)
    tables = _split(head, b"\xff\xda", once=True)
    plain = tf.equal(tf.strings.substr(data, start + 2, 2), b"\xff\xdb") & tf.equal(tf.size(tables), 2)
    plain &= tf.equal(tf.size(_split(head, b"\xff\xe1", once=True)), 1) & tf.not_equal(components, 4)
    return tf.cond(plain, _plain, lambda: _of_jpeg(data))


def png_orientation(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Read the orientation of a PNG, and whether it has a chunk `tRNS`, a transparent colour or palette entries.

    A PNG with compressed metadata of more than 64 KB is rejected, because of the memory that they may take.

    Args:
        data: () string, beginning with an IHDR chunk.

    Returns:
        `(orientation, transparent)`: () int32 from 1 to 8, 1 where none is stated; () bool.

    Example:

    >>> orientation, _ = png_orientation(tf.io.encode_png(tf.zeros((2, 2, 3), tf.uint8)))
    >>> int(orientation)
    1
    """
    # Metadata stand before the first IDAT chunk, or behind the last one. Walking over all IDAT chunks would take long.
    parts = _split(data, b"IDAT")[:-1]
    # The length of a chunk stands before its type.
    starts = tf.cumsum(_length(parts) + 4) - 8
    lengths = _number(tf.strings.substr(tf.strings.join([b"\0" * 4, parts]), -4, 4), 4)
    ends = starts + 12 + lengths
    tail = _behind_pixels(starts, ends, tf.constant(_IHDR_END, tf.int64))
    plain = tf.equal(starts[0], _IHDR_END) & tf.equal(_kind(data, tail), b"IEND")
    return tf.cond(plain, _plain, lambda: _of_png(data, starts, ends))


def _behind_pixels(starts: tf.Tensor, ends: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Return the place behind the IDAT chunks that follow one another.

    Args:
        starts: (n,) int64, ascending, places that are chunks, or bytes "IDAT" within a chunk.
        ends: (n,) int64, where they end, if they are chunks.
        first: () int64, place of the first IDAT chunk.
    """
    is_last = tf.not_equal(tf.concat([starts[1:], [-1]], axis=0), ends) & (starts >= first)
    return ends[tf.argmax(tf.cast(is_last, tf.int32))]


def _plain() -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(1), tf.constant(False)


# Traced once for both formats.
@rare
def _orientation(exif: tf.Tensor, xmp: tf.Tensor) -> tf.Tensor:
    """Return the orientation of EXIF, a TIFF header and directory, else that of XMP; both are empty for none."""
    # Some writers repeat the header of JPEG's segment.
    exif = tf.strings.regex_replace(exif, r"^(Exif\x00\x00)+", "", replace_global=False)
    value = tf.where(tf.equal(exif, b""), tf.constant(0, tf.int64), _exif_orientation(exif))
    value = tf.where(tf.equal(value, 0), _xmp_orientation(tf.where(tf.equal(value, 0), xmp, b"")), value)
    return tf.cast(tf.where((value >= 1) & (value <= 8), value, 1), tf.int32)


@rare
def _of_jpeg(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the orientation, and whether there is Adobe's marker, from the segments before the first scan."""
    # Behind the last of the two bytes that begin APP1 and APP14, no segment need be looked at.
    size = _length(data)
    last = size - tf.minimum(_length(_split(data, b"\xff\xe1")[-1]), _length(_split(data, b"\xff\xee")[-1]))

    def before_scan(place: tf.Tensor, scan: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return (place < last) & ~scan

    def step(
        place: tf.Tensor, _: tf.Tensor, exif: tf.Tensor, xmp: tf.Tensor, adobe: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        start, marker, upper, lower = tf.unstack(_bytes(tf.strings.substr(data, place, 4), 4))
        length = 256 * upper + lower
        is_marker = tf.equal(start, 0xFF) & tf.not_equal(marker, 0xFF) & tf.not_equal(marker, 0)
        alone = ((marker >= 0xD0) & (marker <= 0xD9)) | tf.equal(marker, 1)
        is_app1, is_app14 = is_marker & tf.equal(marker, 0xE1), is_marker & tf.equal(marker, 0xEE)
        body = tf.strings.substr(data, place + 4, tf.where(is_app1 | is_app14, tf.maximum(length - 2, 0), 0))
        adobe |= is_app14 & _starts(body, b"Adobe") & (length >= 14)
        exif = tf.strings.join([exif, _behind(body, b"Exif\0\0", is_app1)])
        block_xmp = _behind(body, _XMP_JPEG, is_app1)
        xmp = tf.where(tf.equal(block_xmp, b""), xmp, block_xmp)
        # Between markers, bytes that are none are skipped, as in libjpeg.
        ahead = tf.where(is_marker, tf.where(alone, tf.constant(2, tf.int64), 2 + length), 1)
        scan = is_marker & (tf.equal(marker, 0xDA) | tf.equal(marker, 0xD9))
        return tf.minimum(place + ahead, size), scan, exif, xmp, adobe

    nothing = tf.constant(b"")
    state = (tf.constant(2, tf.int64), tf.constant(False), nothing, nothing, tf.constant(False))
    place, scan, *metadata = tf.while_loop(before_scan, step, state, maximum_iterations=_MOST)
    with tf.control_dependencies([refuse_unless(~before_scan(place, scan), "too many segments")]):
        exif, xmp, adobe = map(tf.identity, metadata)
    return _orientation(exif, xmp), adobe


@rare
def _of_png(data: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the orientation, and whether there is a transparent colour (`tRNS`), from all chunks."""
    size = _length(data)

    def before_end(place: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return (place + 8 <= size) & tf.not_equal(_kind(data, place), b"IEND")

    def step(place: tf.Tensor, exif: tf.Tensor, *texts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        raw, xmp, transparent = texts
        kind, length = _kind(data, place), _number(tf.strings.substr(data, place, 4), 4)
        is_exif, is_text = tf.equal(kind, b"eXIf"), tf.strings.regex_full_match(kind, "iTXt|tEXt|zTXt")
        body = tf.strings.substr(data, place + 8, tf.where(is_exif | is_text, length, 0))
        found_raw, found_xmp = _behind(body, _RAW_EXIF, is_text), _behind(body, _XMP_PNG, is_text)
        following = tf.where(tf.equal(kind, b"IDAT"), _behind_pixels(starts, ends, place), place + 12 + length)
        return (
            tf.minimum(following, size),
            tf.where(is_exif, body, exif),
            tf.where(tf.equal(found_raw, b""), raw, tf.strings.join([kind, found_raw])),
            tf.where(tf.equal(found_xmp, b""), xmp, tf.strings.join([kind, found_xmp])),
            transparent | tf.equal(kind, b"tRNS"),
        )

    nothing = tf.constant(b"")
    state = (tf.constant(_IHDR_END, tf.int64), nothing, nothing, nothing, tf.constant(False))
    final = tf.while_loop(before_end, step, state, maximum_iterations=_MOST)
    with tf.control_dependencies([refuse_unless(~before_end(*final), "too many chunks")]):
        exif, raw, xmp, transparent = map(tf.identity, final[1:])
    # ImageMagick wrote EXIF as text before `eXIf` was standard.
    exif = tf.strings.join([exif, _raw_exif(tf.where(tf.equal(exif, b""), raw, b""))])
    # Before the compressed text of `zTXt` stands its method, and of `iTXt` also a language and a translation, which end
    # with a zero.
    packed = tf.strings.regex_replace(xmp, r"^(zTXt\C|iTXt\x01\x00[^\x00]*\x00[^\x00]*\x00)", "", replace_global=False)
    compressed = _starts(xmp, b"zTXt") | _starts(xmp, b"iTXt\1")
    return _orientation(exif, _decompressed(compressed, packed, xmp)), transparent


def _raw_exif(raw: tf.Tensor) -> tf.Tensor:
    """Return the EXIF block that the text of a `tEXt` or `zTXt` chunk holds as hexadecimal digits, behind three lines.

    Args:
        raw: () string, the type of the chunk and its content behind the keyword; empty for none.
    """
    # The first byte of compressed text is the method.
    text = _decompressed(_starts(raw, b"zTXt"), _from(raw, 5), _from(raw, 4))
    digits = tf.strings.regex_replace(text, r"^(.*\n){3}", "", replace_global=False)
    digits = tf.strings.lower(tf.strings.regex_replace(tf.strings.substr(digits, 0, 1 << 17), r"\s", ""))
    codes = tf.cast(tf.io.decode_raw(digits, tf.uint8), tf.int32)
    halves = tf.reshape(tf.where(codes >= ord("a"), codes - ord("a") + 10, codes - ord("0")), (-1, 2))
    values = tf.clip_by_value(halves[:, 0] * 16 + halves[:, 1], 0, 255)
    return tf.strings.reduce_join(tf.gather(tf.constant([bytes([value]) for value in range(256)]), values))


def _decompressed(compressed: tf.Tensor, packed: tf.Tensor, text: tf.Tensor) -> tf.Tensor:
    """Return a text, or what is `packed` where it is compressed."""
    packed = tf.where(compressed, packed, _NOTHING_PACKED)
    with tf.control_dependencies([refuse_unless(_length(packed) <= _COMPRESSED, "compressed metadata are too long")]):
        return tf.where(compressed, tf.io.decode_compressed(packed, "ZLIB"), text)


def _exif_orientation(exif: tf.Tensor) -> tf.Tensor:
    """Return the value of the tag in the first directory, () int64; 0 if it has none, 1 for a broken block."""
    size = _length(exif)
    little = _starts(exif, b"II*\0")
    offset = tf.minimum(_number(tf.strings.substr(tf.strings.join([exif, b"\0" * 8]), 4, 4), 4, little), size)
    count = _number(tf.strings.substr(exif, offset, 2), 2, little)
    entries = tf.io.decode_raw(tf.strings.substr(exif, tf.minimum(offset + 2, size), 12 * count), tf.uint8)
    entries = tf.cast(tf.reshape(entries[: tf.size(entries) // 12 * 12], (-1, 12)), tf.int64)
    tag, kind, values, byte, short, long = tf.unstack(
        tf.matmul(entries, tf.where(little, _weights(True), _weights(False))), axis=1
    )
    # Type 6 has 8 bits, 3 and 8 have 16 bits, and 4, 9 and 13 have 32 bits; a value in more than 4 bytes is elsewhere.
    # Pillow does not read type 1 as a number.
    is_byte = tf.equal(kind, 6) & (values >= 1) & (values <= 4)
    is_short = (tf.equal(kind, 3) | tf.equal(kind, 8)) & (values >= 1) & (values <= 2)
    is_long = (tf.equal(kind, 4) | tf.equal(kind, 9) | tf.equal(kind, 13)) & tf.equal(values, 1)
    value = tf.where(is_byte, byte, tf.where(is_short, short, tf.where(is_long, long, 1)))
    value = tf.maximum(value, 1)
    # `tf.boolean_mask` takes ten times the operations.
    rows = tf.where(tf.equal(tag, _ORIENTATION))
    stated = tf.gather(tf.concat([value, [0]], axis=0), tf.concat([tf.shape(tag, tf.int64), rows[:, 0]], axis=0))[-1]
    # Without a header of TIFF, the block is broken, and the image is shown as it is.
    return tf.where(little | _starts(exif, b"MM\0*"), stated, 1)


def _xmp_orientation(xmp: tf.Tensor) -> tf.Tensor:
    """Return the first `tiff:Orientation`, () int64; 1 if there is none."""
    # `\C` is any byte: XMP may be invalid UTF-8.
    pattern = r'tiff:Orientation(="|>)([0-9])\C*'
    stated = tf.strings.regex_full_match(xmp, r"\C*" + pattern)
    digit = tf.strings.regex_replace(xmp, r"^\C*?" + pattern, r"\2", replace_global=False)
    return tf.strings.to_number(tf.where(stated, digit, "1"), tf.int64)


def _split(text: tf.Tensor, separator: bytes, once: bool = False) -> tf.Tensor:
    return tf.raw_ops.StringSplitV2(input=[text], sep=separator, maxsplit=1 if once else -1).values


def _length(text: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(text), tf.int64)


def _starts(text: tf.Tensor, beginning: bytes) -> tf.Tensor:
    return tf.equal(tf.strings.substr(text, 0, len(beginning)), beginning)


def _from(text: tf.Tensor, start: int) -> tf.Tensor:
    """Return a text from a place on; an empty one if the place is behind the end."""
    size = tf.strings.length(text)
    return tf.strings.substr(text, tf.minimum(start, size), size)


def _behind(text: tf.Tensor, beginning: bytes, wanted: tf.Tensor) -> tf.Tensor:
    """Return a text without its beginning; an empty one if it begins otherwise or is not wanted."""
    wanted &= _starts(text, beginning)
    return tf.strings.substr(text, tf.where(wanted, len(beginning), 0), tf.where(wanted, tf.strings.length(text), 0))


def _kind(data: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Return the type of the chunk at a place of a PNG; an empty or cut one behind the end."""
    return tf.strings.substr(data, tf.minimum(place + 4, _length(data)), 4)


def _bytes(text: tf.Tensor, count: int) -> tf.Tensor:
    """Return the first bytes, (count,) int64, zeros behind the end."""
    return tf.cast(tf.io.decode_raw(text, tf.uint8, fixed_length=count), tf.int64)


def _number(text: tf.Tensor, count: int, little: tf.Tensor | None = None) -> tf.Tensor:
    """Return the first bytes of texts (...) as numbers (...), int64; the least significant first if `little`."""
    powers = 256 ** np.arange(count, dtype=np.int64)
    weights = powers[::-1] if little is None else tf.where(little, powers, powers[::-1])
    return tf.reduce_sum(_bytes(text, count) * weights, axis=-1)


def _weights(little: bool) -> np.ndarray:
    """Return (12, 6) int64, which makes numbers of the bytes of an entry of a directory.

    The numbers are the tag, the type, the number of values, and a first value of 8, 16 or 32 bits.
    """
    weights = np.zeros((12, 6), np.int64)
    for column, (start, end) in enumerate(((0, 2), (2, 4), (4, 8), (8, 9), (8, 10), (8, 12))):
        powers = 256 ** np.arange(end - start)
        weights[start:end, column] = powers if little else powers[::-1]
    return weights
