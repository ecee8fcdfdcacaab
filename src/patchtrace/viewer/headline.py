"""What the page says first: whether the query, or a part of it, was found, and whether anything is unusual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.copies.check import CHECKED
from patchtrace.copies.verdict import Kind, Verdict
from patchtrace.drawing.parts import percent

#: What a verdict is called in the first line.
CALLED = {
    Kind.SAME: "{image} is the same picture",
    Kind.CHANGED: "{image} is a changed copy: {changes}",
    Kind.PART: "{image} has a part in common with it",
}
NOT_FOUND = "No copy, and no part in common, was found"
#: The order in which verdicts are told.
ORDER = tuple(Kind)
#: How many images of the list decoys are asked about.
TOP = 10


def headline(result: Attribution, query: int, shown: Sequence[int], listed: Sequence[int]) -> dict[str, Any]:
    """The verdict line of a query, as plain data.

    Parameters
    ----------
    result : Attribution
        With verdicts, if there are any, and a null, if it is known.
    query : int
        Number of the query.
    shown : sequence of int
        Numbers of the images that are shown, best first.
    listed : sequence of int
        The same with those that are folded into others, because they look alike.

    Returns
    -------
    dict
        ``tone`` is ``"found"`` (a copy or a part in common), ``"unusual"`` (it stands out among controls), ``"usual"``
        (it does not) or ``"open"`` (it is not known); ``title`` a line, ``sentences`` what it rests on.

    Examples
    --------
    >>> from patchtrace import PixelSimilarity
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(4, size=64)
    >>> result = PixelSimilarity().fit(cards).attribute(cards.subset([2]))
    >>> headline(result, 0, [2], [2])["title"]
    'The ranking, without a check for copies'
    >>> headline(result.with_verdicts(cards.subset([2]), cards), 0, [2], [2])["title"]
    'card-002 is the same picture'
    """
    about = result.null.about(query) if result.null else None
    seen = dict.fromkeys([*listed, *result.to_check(query)])
    known = [(index, one) for index in seen if (one := result.verdict(query, index)) is not None]
    found = sorted(((index, one) for index, one in known if one.found), key=lambda each: ORDER.index(each[1].kind))
    sentences = [_lead(result, query, shown)]
    if about:
        sentences += [f"{_capital(about[name])}." for name in ("sentence", "likelihood_sentence") if about[name]]
    if found:
        tone, title = "found", _title(result, found)
        place = int(np.flatnonzero(result.ranking(query) == found[0][0])[0]) + 1
        by_z = f" By its share it is at place {place} of the list; its z is large." if place > CHECKED else ""
        sentences.insert(0, _evidence(found[0][1]) + by_z)
    else:
        if known:
            first = set(result.ranking(query)[:CHECKED].tolist())
            more = sum(index not in first for index, _ in known)
            images = f"the first {len(known) - more} images" if len(known) - more > 1 else "the first image"
            images += f" of the list{f' and {more} more with a large z' if more else ''}"
            sentences.insert(0, f"For copies {images} {'were' if len(known) > 1 else 'was'} checked.")
        if about:
            tone, title = "usual", "Nothing stands out"
            if about["stands_out"]:
                tone, title = "unusual", "It stands out among controls"
            elif about["undecided"]:
                tone, title = "open", f"Beyond all of {about['controls']} controls, which are too few to tell"
        else:
            tone, title = "open", NOT_FOUND if known else "The ranking, without a check for copies"
            sentences.append(
                "A share always goes somewhere: a picture that has nothing to do with the collection has a first place "
                "too. Whether this one is unusual was not measured."
            )
    if (nobody := result.nobody(query)) is not None and listed:
        sentences += [f"{_capital(sentence)}." for sentence in nobody.sentences(min(len(listed), TOP))]
    return {"tone": tone, "title": title, "sentences": [sentence for sentence in sentences if sentence]}


def _title(result: Attribution, found: Sequence[tuple[int, Verdict]]) -> str:
    (index, first), others = found[0], len(found) - 1
    title = CALLED[first.kind].format(image=_short(result.train_ids[index]), changes=", ".join(first.changes))
    if others:
        title += f"; {others} more {'images have' if others > 1 else 'image has'} something in common with it"
    return title


def _evidence(verdict: Verdict) -> str:
    """What a verdict rests on."""
    points = f"{verdict.points} points agree on one place, and " if verdict.points else ""
    parts = f"{100 * verdict.of_query:.0f} % of the query and {100 * verdict.of_image:.0f} % of the image"
    return f"What both have in common is {parts}: {points}{100 * verdict.agreement:.0f} % of the detail agrees there."


def _lead(result: Attribution, query: int, shown: Sequence[int]) -> str:
    """The first share, its lead over the second place, and how widely shares are spread."""
    hits = [result.hit(query, index) for index in shown[:2]]
    if not hits:
        return ""
    word = "share" if result.nda else "weight"
    sentence = f"{_short(hits[0].id)} has the largest {word}, {percent(hits[0].share)}"
    if len(hits) > 1 and hits[1].share > 0:
        sentence += f", {lead(hits[0].share, hits[1].share)} that of the second ({percent(hits[1].share)})"
    spread = f"{result.effective_sources()[query]:,.0f} equal ones, of {len(result.train_ids) - result.decoys:,}"
    return f"{sentence}. The {word}s are spread as widely as over {spread}."


def lead(first: float, second: float) -> str:
    """How many times as large a share is as another.

    >>> lead(0.092, 0.066), lead(0.5, 0.002)
    ('1.4 times', '250 times')
    """
    times = first / second
    return f"{times:.1f} times" if times < 10 else f"{times:,.0f} times"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _short(name: str) -> str:
    """An id with its folder, without those above."""
    return "/".join(name.replace("\\", "/").split("/")[-2:])
