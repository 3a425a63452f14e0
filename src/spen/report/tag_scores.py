"""How good a tagger is: scores, tag by tag, span by span, and what it takes for what."""

from __future__ import annotations

from collections import Counter
from typing import Any

from spen.estimators.spans import entity_f1, spans, token_accuracy
from spen.report.sentences import TagSubject
from spen.report.subject import isolated

MOST_TAGS = 500
MOST_MISTAKES = 15


def tagger_scores(subject: TagSubject) -> list[dict[str, Any]]:
    """Return each score with its rule, that of the tagger's ``score`` first."""
    truth, found = subject.judged.tags, subject.predicted
    right = float((subject.rights == 1).sum() / max(1, (subject.rights >= 0).sum()))
    rows = [
        ["token accuracy", token_accuracy(truth, found), "positions with the right tag"],
        ["whole sentences", right, "sentences whose tags are all right"],
    ]
    if subject.tagger.metric_ == "entity_f1" and not any(None in tags for tags in truth):
        rule = "all sentences together; type, beginning and end of a span must be right"
        rows.insert(0, ["F1 of spans", entity_f1(truth, found), rule])
    alone = token_accuracy(truth, subject.alone)
    rows.append(["token accuracy, each position alone", alone, "the tag of the best local score"])
    return [{"name": name, "value": 100 * value, "rule": rule} for name, value, rule in rows]


def tag_rows(subject: TagSubject) -> dict[str, Any]:
    """Return of each tag how often it is there, is predicted, and is right."""
    true, said, right = Counter[Any](), Counter[Any](), Counter[Any]()
    mistakes = Counter[tuple[Any, Any]]()
    for tags, guess in zip(subject.judged.tags, subject.predicted, strict=True):
        for a, b in zip(tags, guess, strict=True):
            if a is None:
                continue
            true[a] += 1
            said[b] += 1
            if a == b:
                right[a] += 1
            else:
                mistakes[a, b] += 1
    order = sorted(set(true) | set(said), key=lambda tag: (-true[tag], str(tag)))
    return {
        "rows": [_line(tag, true[tag], said[tag], right[tag]) for tag in order[:MOST_TAGS]],
        "tags": len(order),
        "untrained": sum(tag not in subject.predictor.rules.names for tag in true),
        "mistakes": [
            [isolated(str(a)), isolated(str(b)), count]
            for (a, b), count in mistakes.most_common(MOST_MISTAKES)
        ],
        "wrong": sum(mistakes.values()),
    }


def span_rows(subject: TagSubject) -> list[list[Any]] | None:
    """Return the same of each type of span; None where tags are not those of spans."""
    truth = subject.judged.tags
    if subject.tagger.metric_ != "entity_f1" or any(None in tags for tags in truth):
        return None
    true, said, right = Counter[str](), Counter[str](), Counter[str]()
    closed = any(tag.partition("-")[0] in "ESLU" for tags in truth for tag in tags)
    for tags, guess in zip(truth, subject.predicted, strict=True):
        theirs, ours = set(spans(tags, closed)), set(spans(guess, closed))
        for counter, found in ((true, theirs), (said, ours), (right, theirs & ours)):
            counter.update(kind for kind, _, _ in found)
    order = sorted(set(true) | set(said), key=lambda kind: (-true[kind], kind))
    return [_line(kind or "span", true[kind], said[kind], right[kind]) for kind in order]


def _line(name: Any, true: int, said: int, right: int) -> list[Any]:
    def percent(part: int, whole: int) -> float | None:
        return round(100 * part / whole, 1) if whole else None

    shares = percent(right, said), percent(right, true), percent(2 * right, true + said)
    return [isolated(str(name)), true, said, *shares]
