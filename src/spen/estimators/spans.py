"""How good taggings are: by their positions, or by the spans that tags describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spen.energies.chain import SPANS
from spen.errors import InputError

Span = tuple[str, int, int]


def are_spans(tags: Sequence[Any]) -> bool:
    """Say whether tags are those of spans, in BIO, BIOES or BILOU.

    All of them are O, or such a letter and a type. Letters alone may be anything, so among them
    there must be both B and I.

    >>> are_spans(["O", "B-NP", "I-NP"]), are_spans(["B", "I", "O"]), are_spans(["N", "O", "S"])
    (True, True, False)
    """
    if not all(isinstance(tag, str) and tag.split("-", 1)[0] in SPANS for tag in tags):
        return False
    typed = [tag for tag in tags if tag != "O"]
    return bool(typed) and (all("-" in tag for tag in typed) or {"B", "I"} <= set(typed))


def spans(tags: Sequence[str], closed: bool = False) -> list[Span]:
    """Return the spans of a sentence, as (type, first position, position after the last).

    The strict rule: a span begins at B-x (or is S-x alone) and goes on while I-x of the same type
    follows, or ends with E-x. An I-x or E-x that continues nothing is no span.

    Args:
        tags: in BIO, BIOES or BILOU.
        closed: whether one that has begun must also come to an E or L.

    >>> spans(["B-NP", "I-NP", "O", "I-NP", "B-VP"])
    [('NP', 0, 2), ('VP', 4, 5)]
    >>> spans(["B-NP", "E-NP", "S-NP", "B-VP"], closed=True)
    [('NP', 0, 2), ('NP', 2, 3)]
    """
    found: list[Span] = []
    begun: tuple[str, int] | None = None
    for t, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        part = SPANS.get(letter, "O")
        goes_on = begun is not None and part in "IE" and kind == begun[0]
        if begun is not None and not goes_on:
            if not closed:
                found.append((*begun, t))
            begun = None
        if part == "S":
            found.append((kind, t, t + 1))
        elif part == "B":
            begun = kind, t
        elif part == "E" and begun is not None:
            found.append((*begun, t + 1))
            begun = None
    return found


def entity_f1(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the F1 of the spans found, over all sentences together.

        F1 = 2 · right / (spans in truth + spans in predicted)

    A span is right if its type, its beginning and its end are. The rule is strict, as that of
    seqeval's strict mode, and conlleval's where tags are well formed: only B begins a span (or S,
    U one of a single position); an I that continues nothing is no span. Where the truth has tags
    E or S (L or U), a span that is begun but not ended is none. Without any span on either side
    the score is 1.

    Args:
        truth: the tags of each sentence, in BIO, BIOES or BILOU.
        predicted: as many, and as long.

    >>> truth = [["B-NP", "I-NP", "O", "B-NP"]]
    >>> entity_f1(truth, [["B-NP", "I-NP", "O", "O"]])
    0.6666...
    """
    check_alike(truth, predicted)
    used = {tag.partition("-")[0] for sentence in truth for tag in sentence}
    closed = bool(used & {"E", "S", "L", "U"})
    right = both = 0
    for tags, guess in zip(truth, predicted, strict=True):
        true, found = set(spans(tags, closed)), set(spans(guess, closed))
        right += len(true & found)
        both += len(true) + len(found)
    return 2 * right / both if both else 1.0


def check_alike(truth: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Raise unless two taggings have as many sentences, and these are as long."""
    if len(truth) != len(predicted):
        raise InputError(
            f"There must be as many sentences on both sides; received {len(truth)} and "
            f"{len(predicted)}."
        )
    for i, (tags, guess) in enumerate(zip(truth, predicted, strict=True)):
        if len(tags) != len(guess):
            raise InputError(f"Sentence {i} has {len(tags)} tags in truth and {len(guess)} here.")


def token_accuracy(
    truth: Sequence[Sequence[Any]],
    predicted: Sequence[Sequence[Any]],
    weight: Any = None,
) -> float:
    """Return the share of positions with the right tag, of those whose tag is known.

    Args:
        truth: the tags of each sentence, None where one is not known.
        predicted: as many, and as long.
        weight: how much each sentence counts; None means one.

    >>> token_accuracy([["a", None], ["b"]], [["a", "b"], ["a"]])
    0.5
    """
    check_alike(truth, predicted)
    right = counted = 0.0
    weights = [1.0] * len(truth) if weight is None else weight
    for tags, guess, each in zip(truth, predicted, weights, strict=True):
        pairs = [(a, b) for a, b in zip(tags, guess, strict=True) if a is not None]
        right += each * sum(a == b for a, b in pairs)
        counted += each * len(pairs)
    if not counted:
        raise InputError("No position has a tag, so there is nothing to score.")
    return float(right / counted)
