"""Each rule of decoding, shown on pixels; and each way in which a file can be broken."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hostile import jpeg_that_claims
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import FORMATS, LONGEST_SIDE, Decoding, Unreadable, decode, decode_at

RED, LIME, BLUE, WHITE, BLACK, GOLD = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255,) * 3, (0,) * 3, (200, 160, 40)
ORIENTATION = 0x0112


def pixel(pixels, row, column):
    return tuple(pixels[:, row, column].tolist())


def near(colour, expected, tolerance=8):
    return max(abs(a - b) for a, b in zip(colour, expected, strict=True)) <= tolerance


def two_halves(left, right, mode="RGB"):
    """A picture of 16 x 8 pixels: JPEG codes its halves apart from each other, so that their colours stay clean."""
    picture = Image.new(mode, (16, 8), right)
    picture.paste(left, (0, 0, 8, 8))
    return picture


def orientation(value):
    # made anew for each file, since Pillow's AVIF writer takes the mark out of the one it is given
    exif = Image.Exif()
    exif[ORIENTATION] = value
    return exif


# --- every format ---


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("JPEG", "a.jpg", {"quality": 95}),
        ("JPEG", "a.jpeg", {"quality": 95, "progressive": True}),
        ("PNG", "a.png", {}),
        ("WEBP", "a.webp", {"quality": 95}),
        ("WEBP", "lossless.webp", {"lossless": True}),
        ("GIF", "a.gif", {}),
        ("BMP", "a.bmp", {}),
        ("TIFF", "a.tiff", {}),
        ("TIFF", "a.tif", {"compression": "tiff_lzw"}),
        ("AVIF", "a.avif", {"quality": 95}),
    ],
)
def test_every_format_keeps_its_colours_and_their_places(tmp_path, encoded, kind, name, options):
    quarters = np.zeros((32, 32, 3), np.uint8)
    quarters[:16, :16], quarters[:16, 16:], quarters[16:, :16], quarters[16:, 16:] = RED, GOLD, BLUE, WHITE
    path = tmp_path / name
    path.write_bytes(encoded(quarters, kind, **options))
    pixels = decode(path, Decoding())
    found = [pixel(pixels, *place) for place in ((8, 8), (8, 24), (24, 8), (24, 24))]
    assert all(near(a, b) for a, b in zip(found, (RED, GOLD, BLUE, WHITE), strict=True)), found


def test_pixels_are_u8_with_channels_first(encoded, noise):
    pixels = decode(encoded(noise[:20], "PNG"), Decoding())
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, noise[:20].transpose(2, 0, 1))


def test_the_content_decides_and_not_the_extension(tmp_path, flat_png):
    path = tmp_path / "really_a_png.jpg"
    path.write_bytes(flat_png(GOLD))
    assert pixel(decode(path, Decoding()), 4, 4) == GOLD


def test_a_picture_in_memory_is_decoded_like_the_file_of_it(encoded):
    picture = two_halves((255, 0, 0, 0), (0, 0, 255, 255), "RGBA")
    np.testing.assert_array_equal(decode(picture, Decoding()), decode(encoded(picture, "PNG"), Decoding()))


@pytest.mark.parametrize("rule", ["apply", "ignore"])
def test_a_picture_in_memory_is_not_changed_by_being_decoded(encoded, rule):
    with Image.open(io.BytesIO(encoded(two_halves(RED, BLUE), "PNG", exif=orientation(6)))) as picture:
        decode(picture, Decoding(exif=rule, grey=True, crop=4))
        assert (picture.size, picture.mode, picture.getexif().get(ORIENTATION)) == ((16, 8), "RGB", 6)


# --- rotation ---

TURNS = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a.transpose(1, 0, 2), 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("mark", TURNS)
def test_each_orientation_mark_turns_the_picture_upright(encoded, noise, mark):
    stored = noise[:6, :9]
    pixels = decode(encoded(stored, "PNG", exif=orientation(mark)), Decoding())
    np.testing.assert_array_equal(pixels.transpose(1, 2, 0), TURNS[mark](stored))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_exif_apply_turns_the_pixels(encoded, kind):
    content = encoded(two_halves(RED, BLUE), kind, exif=orientation(6), quality=95)
    pixels = decode(content, Decoding(exif="apply"))
    assert pixels.shape == (3, 16, 8)
    assert near(pixel(pixels, 3, 4), RED)
    assert near(pixel(pixels, 12, 4), BLUE)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_exif_ignore_leaves_the_pixels_as_stored(encoded, kind):
    content = encoded(two_halves(RED, BLUE), kind, exif=orientation(6), quality=95)
    pixels = decode(content, Decoding(exif="ignore"))
    assert pixels.shape == (3, 8, 16)
    assert near(pixel(pixels, 4, 3), RED)
    assert near(pixel(pixels, 4, 12), BLUE)


def test_a_deep_grey_picture_is_turned_too(encoded):
    stored = np.arange(12, dtype=np.uint16).reshape(3, 4) * 257
    pixels = decode(encoded(stored, "PNG", exif=orientation(6)), Decoding())
    np.testing.assert_array_equal(pixels[0], np.rot90(np.arange(12).reshape(3, 4), -1))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        pytest.param(b"Exif\0\0this is not a TIFF header", id="no header"),
        pytest.param(b"Exif\0\0II*\0\xff\xff\xff\xff", id="offset beyond the end"),
        pytest.param(b"Exif\0\0II*\0\x08\0\0\0\xff\xff", id="entries missing"),
        pytest.param(b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\0\0\0\x04abc\0\0\0\0\0", id="orientation is text"),
    ],
)
@pytest.mark.parametrize("rule", ["apply", "ignore"])
def test_garbage_exif_leaves_the_picture_readable_and_unturned(encoded, kind, exif, rule):
    pixels = decode(encoded(two_halves(RED, BLUE), kind, exif=exif, quality=95), Decoding(exif=rule))
    assert pixels.shape == (3, 8, 16)
    assert near(pixel(pixels, 4, 3), RED)


@pytest.mark.parametrize("mark", [0, 9, 255])
def test_an_orientation_that_does_not_exist_turns_nothing(encoded, noise, mark):
    stored = noise[:6, :9]
    pixels = decode(encoded(stored, "PNG", exif=orientation(mark)), Decoding())
    np.testing.assert_array_equal(pixels.transpose(1, 2, 0), stored)


# --- transparency ---


def palette_halves():
    picture = two_halves(0, 1, "P")
    picture.putpalette([*RED, *BLUE])
    return picture


DEEP_HALVES = np.repeat(np.array([[9, 0]], np.uint16), 8, axis=0).repeat(8, axis=1)


@pytest.mark.parametrize(
    ("picture", "kind", "options", "opaque"),
    [
        pytest.param(two_halves((*RED, 0), (*RED, 255), "RGBA"), "PNG", {}, RED, id="RGBA PNG"),
        pytest.param(two_halves((*RED, 0), (*RED, 255), "RGBA"), "WEBP", {"exact": True}, RED, id="RGBA WebP"),
        pytest.param(two_halves((*RED, 0), (*RED, 255), "RGBA"), "TIFF", {}, RED, id="RGBA TIFF"),
        pytest.param(two_halves((*RED, 0), (*RED, 255), "RGBA"), "AVIF", {"quality": 95}, RED, id="RGBA AVIF"),
        pytest.param(two_halves((0, 0), (0, 255), "LA"), "PNG", {}, BLACK, id="LA PNG"),
        pytest.param(palette_halves(), "PNG", {"transparency": 0}, BLUE, id="palette PNG"),
        pytest.param(palette_halves(), "GIF", {"transparency": 0}, BLUE, id="palette GIF"),
        pytest.param(two_halves(RED, BLUE), "PNG", {"transparency": RED}, BLUE, id="RGB PNG with one clear colour"),
        pytest.param(two_halves(9, 0, "L"), "PNG", {"transparency": 9}, BLACK, id="grey PNG with one clear level"),
        pytest.param(DEEP_HALVES, "PNG", {"transparency": 9}, BLACK, id="16-bit PNG with one clear level"),
    ],
)
def test_what_is_transparent_becomes_white_and_the_rest_stays(encoded, picture, kind, options, opaque):
    pixels = decode(encoded(picture, kind, **options), Decoding())
    assert near(pixel(pixels, 4, 3), WHITE)
    assert near(pixel(pixels, 4, 12), opaque)


def test_half_transparent_red_is_half_way_to_white(encoded):
    pixels = decode(encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 128)), "PNG"), Decoding())
    assert near(pixel(pixels, 4, 4), (255, 127, 127), tolerance=1)


def test_transparency_becomes_white_in_grey_too(encoded):
    content = encoded(two_halves((0, 0, 0, 0), (0, 0, 0, 255), "RGBA"), "PNG")
    np.testing.assert_array_equal(decode(content, Decoding(grey=True))[0, 0], [255] * 8 + [0] * 8)


# --- depth and colour ---


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")],
    ids=["PNG", "TIFF", "big-endian TIFF"],
)
def test_a_deep_grey_ramp_keeps_all_levels_of_eight_bits(encoded, kind, dtype):
    ramp = np.linspace(0, 65535, 64 * 64).round().astype(dtype).reshape(64, 64)
    pixels = decode(encoded(ramp, kind), Decoding(grey=True))[0].ravel()
    assert (pixels[0], pixels[-1]) == (0, 255)
    assert len(np.unique(pixels)) == 256
    assert abs(pixels - ramp.ravel() / 257).max() <= 0.5


def test_deep_grey_has_equal_channels_in_colour(encoded):
    pixels = decode(encoded(np.full((4, 4), 128 * 257, np.uint16), "PNG"), Decoding())
    assert pixel(pixels, 0, 0) == (128, 128, 128)


def test_deep_colour_is_scaled_to_eight_bits(raw_png):
    samples = b"\0" + b"".join((value * 257).to_bytes(2) for value in GOLD)
    assert pixel(decode(raw_png(1, 1, samples, depth=16, colour=2), Decoding()), 0, 0) == GOLD


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((4, 4), np.float32), "floating-point"),
        (np.full((4, 4), 70000, np.int32), "16 bits"),
        (np.full((4, 4), -1, np.int32), "16 bits"),
    ],
)
def test_pixels_of_unknown_range_are_refused(encoded, array, reason):
    with pytest.raises(Unreadable, match=reason):
        decode(encoded(array, "TIFF"), Decoding())


@pytest.mark.parametrize("grey", [False, True])
def test_cmyk_becomes_the_colour_that_was_printed(encoded, grey):
    picture = two_halves((0, 255, 255, 0), (0, 0, 0, 0), "CMYK")
    pixels = decode(encoded(picture, "JPEG", quality=95), Decoding(grey=grey))
    assert near(pixel(pixels, 4, 3), (76,) if grey else RED)
    assert near(pixel(pixels, 4, 12), (255,) if grey else WHITE)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_a_palette_becomes_its_colours(encoded, kind):
    pixels = decode(encoded(palette_halves(), kind), Decoding())
    assert (pixel(pixels, 4, 3), pixel(pixels, 4, 12)) == (RED, BLUE)


def test_one_bit_becomes_black_and_white(encoded):
    pixels = decode(encoded(two_halves(0, 1, "1"), "PNG"), Decoding())
    assert (pixel(pixels, 4, 3), pixel(pixels, 4, 12)) == (BLACK, WHITE)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "AVIF", "TIFF", "MPO"])
def test_an_animation_counts_as_its_first_frame(encoded, kind):
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, LIME, BLUE)]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert near(pixel(decode(content, Decoding()), 8, 8), RED)


def test_grey_gives_one_channel_of_luma(encoded):
    pixels = decode(encoded(two_halves(RED, LIME), "PNG"), Decoding(grey=True))
    assert pixels.shape == (1, 8, 16)
    assert (pixels[0, 4, 3], pixels[0, 4, 12]) == (76, 150)


# --- crop, size, fit ---


def test_crop_takes_the_middle_square(encoded, noise):
    pixels = decode(encoded(noise[:10, :20], "PNG"), Decoding(crop=4))
    np.testing.assert_array_equal(pixels.transpose(1, 2, 0), noise[3:7, 8:12])


def test_crop_comes_before_the_size(encoded):
    picture = Image.new("RGB", (20, 20), BLUE)
    picture.paste(RED, (5, 5, 15, 15))
    pixels = decode(encoded(picture, "PNG"), Decoding(crop=10, size=(5, 5)))
    np.testing.assert_array_equal(pixels, np.broadcast_to(np.reshape(RED, (3, 1, 1)), (3, 5, 5)))


def test_a_picture_smaller_than_the_crop_is_unreadable(encoded, noise):
    with pytest.raises(Unreadable, match=r"20 x 10 pixels, smaller than the crop of 12"):
        decode(encoded(noise[:10, :20], "PNG"), Decoding(crop=12))


@pytest.mark.parametrize("wide", [True, False])
def test_cover_cuts_both_ends_of_the_longer_side_alike(encoded, wide):
    picture = np.full((20, 40, 3), BLUE, np.uint8)
    picture[:, 10:30] = RED
    pixels = decode(encoded(picture if wide else picture.transpose(1, 0, 2), "PNG"), Decoding(size=(10, 10)))
    # the filter reaches a little beyond the cut, and may tint the outermost pixels
    assert all(near(pixel(pixels, row, column), RED, 20) for row in range(10) for column in range(10))


@pytest.mark.parametrize("fit", ["cover", "pad"])
def test_a_square_stays_square(encoded, fit):
    picture = np.full((24, 48), 255, np.uint8)
    picture[8:16, 20:28] = 0
    dark = decode(encoded(picture, "PNG"), Decoding(size=(24, 24), grey=True, fit=fit))[0] < 128
    assert dark.any(axis=1).sum() == dark.any(axis=0).sum() > 0


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("wide", [True, False])
def test_pad_shows_all_of_the_picture_between_white_bars(encoded, wide, grey):
    size = (40, 20) if wide else (20, 40)
    pixels = decode(encoded(Image.new("RGB", size, BLACK), "PNG"), Decoding(size=(16, 16), fit="pad", grey=grey))
    expected = np.full((16, 16), 255)
    expected[4:12] = 0
    for channel in pixels:
        np.testing.assert_array_equal(channel, expected if wide else expected.T)


@pytest.mark.parametrize("fit", ["cover", "pad"])
@pytest.mark.parametrize("size", [(100, 1), (1, 100)])
def test_a_line_of_pixels_is_still_brought_to_size(encoded, fit, size):
    pixels = decode(encoded(Image.new("RGB", size, RED), "PNG"), Decoding(size=(8, 8), fit=fit))
    assert pixels.shape == (3, 8, 8)
    assert RED in {pixel(pixels, row, column) for row in range(8) for column in range(8)}


@pytest.mark.parametrize("size", [(4, 6), (16, 8), (8, 16)])
def test_size_is_height_and_then_width(encoded, size):
    assert decode(encoded(two_halves(RED, BLUE), "PNG"), Decoding(size=size)).shape == (3, *size)


@pytest.mark.parametrize("fit", ["cover", "pad"])
def test_a_picture_of_the_size_asked_for_is_untouched(encoded, noise, fit):
    pixels = decode(encoded(noise, "PNG"), Decoding(size=(40, 40), fit=fit))
    np.testing.assert_array_equal(pixels.transpose(1, 2, 0), noise)


@pytest.mark.parametrize("side", [16, 20, 24])
def test_shrinking_a_fine_checkerboard_gives_even_grey(encoded, side):
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    # the outermost pixels see only half of the filter, and are not about aliasing
    inside = decode(encoded(board, "PNG"), Decoding(size=(side, side), grey=True))[0, 2:-2, 2:-2]
    assert (abs(inside.astype(int) - 127) <= 4).all(), np.unique(inside)


# --- broken files ---


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF"])
def test_half_a_file_is_said_to_be_truncated(encoded, noise, kind):
    content = encoded(noise, kind)
    with pytest.raises(Unreadable, match=r"(?i)truncated"):
        decode(content[: len(content) // 2], Decoding())


@pytest.mark.parametrize("kind", FORMATS)
def test_half_a_file_is_unreadable(encoded, noise, kind):
    content = encoded(noise, kind)
    with pytest.raises(Unreadable):
        decode(content[: len(content) // 2], Decoding())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "empty file", id="no bytes"),
        pytest.param(b"This is no picture.\n" * 20, "not an image of a kind that can be read", id="text"),
        pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image of a kind that can be read", id="svg"),
        pytest.param(
            b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image of a kind that can be read", id="a program in PostScript"
        ),
    ],
)
def test_a_file_that_is_no_image_says_so(tmp_path, content, reason):
    path = tmp_path / "picture.jpg"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=reason):
        decode(path, Decoding())


def test_a_format_that_is_not_listed_is_not_decoded(encoded):
    with pytest.raises(Unreadable, match="not an image of a kind that can be read"):
        decode(encoded(two_halves(RED, BLUE), "PPM"), Decoding())


@pytest.mark.parametrize(
    "side",
    [pytest.param(12_000, id="below the hard limit of Pillow"), pytest.param(20_000, id="above it")],
)
def test_a_decompression_bomb_is_refused_for_its_pixels(raw_png, side):
    content = raw_png(side, side, bytes(1_000_000))
    assert len(content) < 10_000
    with pytest.raises(Unreadable, match=r"more than .*89478485"):
        decode(content, Decoding())


def test_a_bomb_is_refused_before_anything_is_decoded(raw_png, monkeypatch):
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", lambda self: pytest.fail("decoded"))
    with pytest.raises(Unreadable, match="12000 x 12000 pixels"):
        decode(raw_png(12_000, 12_000, b""), Decoding())


def test_a_column_of_millions_of_pixels_is_refused_for_its_length(raw_png):
    with pytest.raises(Unreadable, match="a side longer than 65535"):
        decode(raw_png(1, LONGEST_SIDE + 1, bytes(2 * (LONGEST_SIDE + 1))), Decoding())
    assert decode(raw_png(1, LONGEST_SIDE, bytes(2 * LONGEST_SIDE)), Decoding()).shape == (3, LONGEST_SIDE, 1)


def test_a_jpeg_that_claims_more_pixels_than_it_can_hold_is_truncated():
    data = jpeg_that_claims(7000)
    assert len(data) < 1000
    with pytest.raises(Unreadable, match="truncated"):
        decode(data, Decoding())


@pytest.mark.parametrize("options", [{}, {"progressive": True, "optimize": True}, {"quality": 1, "optimize": True}])
def test_the_emptiest_jpeg_is_still_read(encoded, options):
    data = encoded(Image.new("L", (2000, 2000)), "JPEG", **options)
    assert decode(data, Decoding()).shape == (3, 2000, 2000)


def test_several_sizes_are_those_of_one_decoding_each(encoded, noise):
    data, sizes = encoded(noise, "PNG"), [(8, 8), None, (5, 9)]
    for fit in ("cover", "pad"):
        many = decode_at(data, Decoding(fit=fit), sizes)
        for size, pixels in zip(sizes, many, strict=True):
            assert np.array_equal(pixels, decode(data, Decoding(size=size, fit=fit)))


def test_max_pixels_is_the_last_number_that_is_decoded(flat_png):
    assert decode(flat_png(RED, 8, 8), Decoding(max_pixels=64)).shape == (3, 8, 8)
    with pytest.raises(Unreadable, match=r"9 x 8 pixels, more than the limit of 64"):
        decode(flat_png(RED, 9, 8), Decoding(max_pixels=64))


def test_max_pixels_cannot_allow_more_than_pillow_would():
    with pytest.raises(PatchtraceError, match="max_pixels is 178956971: use at most 178956970"):
        Decoding(max_pixels=178_956_971)


def test_a_picture_above_the_limit_of_pillow_is_refused_for_its_pixels_under_the_largest_limit(raw_png):
    with pytest.raises(Unreadable, match="more than 178956970 pixels"):
        decode(raw_png(13_378, 13_378, b""), Decoding(max_pixels=178_956_970))


@pytest.mark.parametrize("on_disk", [True, False])
def test_max_bytes_is_the_last_length_that_is_read(tmp_path, flat_png, on_disk):
    content = flat_png(GOLD)
    path = tmp_path / "a.png"
    path.write_bytes(content)
    source = path if on_disk else content
    assert pixel(decode(source, Decoding(max_bytes=len(content))), 0, 0) == GOLD
    with pytest.raises(Unreadable, match=f"{len(content)} bytes, more than the limit of {len(content) - 1}"):
        decode(source, Decoding(max_bytes=len(content) - 1))


def test_a_pipe_is_not_waited_for(tmp_path, waiting_pipe):
    path = tmp_path / "pipe.png"
    with waiting_pipe(path), pytest.raises(Unreadable, match="not a regular file"):
        decode(path, Decoding())


def test_a_folder_with_the_name_of_an_image_is_not_a_regular_file(tmp_path):
    (tmp_path / "x.png").mkdir()
    with pytest.raises(Unreadable, match="not a regular file"):
        decode(tmp_path / "x.png", Decoding())


def test_a_missing_file_is_unreadable(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        decode(tmp_path / "gone.png", Decoding())


@pytest.fixture(scope="module")
def small_files(encoded, noise):
    tile = noise[:12, :16]
    files = {kind: encoded(tile, kind, exif=orientation(6), quality=60) for kind in ("JPEG", "WEBP", "AVIF")}
    return files | {
        "PNG": encoded(Image.fromarray(tile).quantize(8), "PNG", transparency=0),
        "GIF": encoded(tile, "GIF"),
        "BMP": encoded(tile, "BMP"),
        "TIFF": encoded(tile, "TIFF", compression="tiff_lzw"),
    }


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=6),
    cut=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_a_damaged_file_is_a_picture_of_the_right_shape_or_unreadable(small_files, kind, changes, cut):
    content = bytearray(small_files[kind])
    for place, flip in changes:
        content[place % len(content)] ^= flip
    if cut is not None:
        del content[cut % len(content) :]
    try:
        pixels = decode(bytes(content), Decoding(size=(8, 8), max_pixels=100_000))
    except Unreadable as reason:
        outcome = str(reason)
    else:
        outcome = pixels.shape, pixels.dtype
    assert outcome == ((3, 8, 8), np.uint8) or (outcome and isinstance(outcome, str))


# --- the rules themselves ---


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": (0, 8)}, "size"),
        ({"size": (8, 4097)}, "size"),
        ({"size": (8,)}, "size"),
        ({"size": (8.0, 8)}, "size"),
        ({"fit": "stretch"}, "fit"),
        ({"exif": "maybe"}, "exif"),
        ({"crop": 0}, "crop"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"max_bytes": -1}, "max_bytes"),
    ],
)
def test_a_rule_that_makes_no_sense_is_named(options, named):
    with pytest.raises(PatchtraceError, match=f"^{named} is "):
        Decoding(**options)


def test_the_record_holds_chosen_and_fixed_rules_as_plain_data():
    record = json.loads(json.dumps(Decoding(size=(8, 6), grey=True, fit="pad", crop=4, exif="ignore").record()))
    chosen = {"size": [8, 6], "grey": True, "fit": "pad", "crop": 4, "exif": "ignore"}
    assert {name: record[name] for name in chosen} == chosen
    assert {"max_pixels", "max_bytes", "alpha", "16-bit", "animation", "colour", "resize"} <= set(record)
