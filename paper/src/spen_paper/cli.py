"""The commands ``spen reproduce`` and ``spen bench``, which this package adds to ``spen``.

They are plain functions, which ``python -m spen_paper`` calls where cyclopts is not installed;
what they need is imported when they run, so that help does not wait for torch.
"""

from __future__ import annotations

from pathlib import Path


def table3(
    *,
    seeds: int = 3,
    out: Path = Path("runs/table3"),
    method: str | None = None,
    n_train: int | None = None,
) -> None:
    """Table 3: linear, MLP and SPEN on the synthetic task with exclusive labels.

    Args:
        seeds: How many repetitions; each draws its own task and initial weights.
        out: The folder for records; runs that are there already are not made again.
        method: Only this row of the table.
        n_train: Only this training size.
    """
    from spen_paper.tables import table3 as module

    module.table3(seeds, out, method, n_train)


def table1(
    *,
    dataset: str = "bibtex",
    method: str | None = None,
    seeds: int = 5,
    device: str = "auto",
    out: Path = Path("runs/table1"),
    study: str | None = None,
) -> None:
    """Table 1: every method of the paper on a real data set, under three decodings.

    Args:
        dataset: bibtex, delicious or bookmarks.
        method: Only these rows, separated by commas: br, lr, mlp, mlp-best, dmf, prlr,
            spen-paper, spen-paper-raw, control-single, spen-single, control-best, spen-best.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
        study: In place of the table, a study of where the energy pays, of what methods cost, or the
            table by the settings before: learning-curves, width, known-labels, ablation, costs,
            before.
    """
    from spen_paper.tables import table1 as module

    module.table1(dataset, method, seeds, device, out, study)


def table2(
    *,
    method: str | None = None,
    folds: int = 10,
    seeds: int = 1,
    out: Path = Path("runs/table2"),
    study: str | None = None,
) -> None:
    """Table 2: structured SVMs with exact, relaxed and approximate inference on Yeast.

    Args:
        method: Only these rows, separated by commas: exact, lp, lbp, lbp-plain, dmf, spen,
            spen-best, br.
        folds: Of the cross-validation.
        seeds: How often the rows are divided into folds.
        out: The folder for records; runs that are there already are not made again.
        study: In place of the table, violations: which violated margins each solver sees while it
            trains, and what it misses in prediction.
    """
    from spen_paper.tables import table2 as module

    module.table2(method, folds, seeds, out, study)


def claims(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/claims"),
) -> None:
    """The paper's side remarks: the claim, what is measured here, agreed or not.

    Args:
        dataset: bibtex or delicious.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
    """
    from spen_paper.studies import claims as module

    module.claims(dataset, seeds, device, out)


def structure(*, seeds: int = 3, out: Path = Path("runs/structure")) -> None:
    """The measurement matrices learned with ReLU and HardTanh, and how block-like they are.

    Args:
        seeds: How many repetitions; the picture shows the first.
        out: The folder for records and pictures.
    """
    from spen_paper.tables import table3 as module

    module.structure(seeds, out)


def convergence(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/convergence"),
) -> None:
    """How inference converges: steps, speed against F1, and search errors.

    Args:
        dataset: bibtex or delicious.
        seeds: How many models.
        device: Where they are trained: auto, cpu or cuda.
        out: The folder for models, records and pictures; what is there is not made again.
    """
    from spen_paper.studies import convergence as module

    module.convergence(dataset, seeds, device, out)


def objectives(
    *,
    dataset: str = "bibtex",
    method: str | None = None,
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/objectives"),
) -> None:
    """End-to-end, convex, hinge and unrolled training beside each other, on the same features.

    Args:
        dataset: bibtex.
        method: Only these rows, separated by commas: mlp, hinge, end-to-end, end-to-end-rates,
            unrolled, unrolled-f1, convex, convex-implicit, convex-hinge.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
    """
    from spen_paper.tables import objectives as module

    module.objectives(dataset, method, seeds, device, out)


def known(
    *,
    dataset: str | None = None,
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/known"),
) -> None:
    """Some labels are known: what a SPEN says of the others, beside a network told of them.

    Args:
        dataset: Only this one of yeast, bibtex, delicious, debian-tags, debian-depends.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records and the picture; runs that are there are not made again.
    """
    from spen_paper.studies import known as module

    module.known(dataset, seeds, device, out)


def questions(
    *,
    dataset: str = "delicious",
    seeds: int = 3,
    rows: int = 500,
    device: str = "auto",
    out: Path = Path("runs/questions"),
) -> None:
    """What the answers to a few questions tell about other labels, by how the labels are chosen.

    Args:
        dataset: yeast, bibtex, delicious, debian-tags or debian-depends.
        seeds: How many repetitions.
        rows: How many test rows, a fixed random sample.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
    """
    from spen_paper.studies import questions as module

    module.questions(dataset=dataset, seeds=seeds, rows=rows, device=device, out=out)


def noise(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    folds: int = 3,
    rows: int | None = None,
    device: str = "auto",
    out: Path = Path("runs/noise"),
) -> None:
    """Errors are planted in training labels: how many label_issues and cleanlab's ranking find.

    Args:
        dataset: yeast, bibtex, delicious, debian-tags or debian-depends.
        seeds: How many repetitions; each plants its own errors.
        folds: How many models judge, each the rows that it has not seen.
        rows: Only so many training rows, drawn at random; all if nothing is said.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
    """
    from spen_paper.studies import noise as module

    module.noise(dataset=dataset, seeds=seeds, folds=folds, rows=rows, device=device, out=out)


def ocr(
    *,
    split: str | None = None,
    method: str | None = None,
    seeds: int = 1,
    folds: int | None = None,
    device: str = "auto",
    out: Path = Path("runs/tagging"),
    kept: bool = False,
) -> None:
    """Handwritten words: local model, CRF, structured SVM and SPENs over the same features.

    Args:
        split: Only this one of folds (train on nine of ten), one-fold (train on one, test on nine)
            and new-words (no word of the test rows is in training).
        method: Only these rows, separated by commas: local, crf, ssvm, spen, spelling, gspen.
        seeds: How many repetitions of every fold.
        folds: Only the first folds.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
        kept: Run nothing: what OUT has, of the divisions and seeds that all methods were run on.
    """
    from spen_paper.tables.tagging import tagging

    tagging("ocr", split, method, seeds, folds, device, out, kept)


def twitter(
    *,
    method: str | None = None,
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/tagging"),
    kept: bool = False,
) -> None:
    """Parts of speech of tweets: local model, CRF, structured SVM and SPEN over the same features.

    Args:
        method: Only these rows, separated by commas: local, crf, ssvm, spen.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
        kept: Run nothing: what OUT has, of the divisions and seeds that all methods were run on.
    """
    from spen_paper.tables.tagging import tagging

    tagging("twitter", None, method, seeds, None, device, out, kept)


def chunking(
    *,
    method: str | None = None,
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/tagging"),
    kept: bool = False,
) -> None:
    """Chunks of CoNLL-2000: local model, CRF, structured SVM and SPEN over the same features.

    Args:
        method: Only these rows, separated by commas: local, crf, ssvm, spen.
        seeds: How many repetitions.
        device: auto, cpu or cuda.
        out: The folder for records; runs that are there already are not made again.
        kept: Run nothing: what OUT has, of the divisions and seeds that all methods were run on.
    """
    from spen_paper.tables.tagging import tagging

    tagging("chunking", None, method, seeds, None, device, out, kept)


def bench(
    *,
    device: str = "auto",
    out: Path = Path("runs/bench"),
    model: Path | None = None,
    data: str | None = None,
    json: bool = False,
) -> None:
    """Measure inference: ratios of times that are taken in turns, in one process.

    The model is the paper's on Bibtex, trained once and kept in OUT. Without Bibtex, rows of
    its shape are generated. Writes OUT/bench.json and OUT/bench.png. Takes some minutes.

    Args:
        device: auto takes a GPU where there is one; or cpu, cuda.
        out: The folder for the model, the figures and the picture.
        model: A model file of your own to measure instead, with rows from --data.
        data: For --model: a file with the features and labels of its training file, or a
            name from `spen data list`; bibtex if nothing is said.
        json: Print the nine figures as one JSON object instead of tables.
    """
    from spen import InputError, load
    from spen.cli.files import dataset_for
    from spen.cli.show import say, show_json, show_table
    from spen.model import usable_device
    from spen_paper.bench import run
    from spen_paper.bench.model import TimedModel, paper_subject

    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file. Name a folder.")
    if data is not None and model is None:
        raise InputError("--data needs --model: without one, the paper's model is measured.")
    chosen = usable_device(device)
    if model is None:
        subject = paper_subject(out, chosen)
    else:
        # The user's own model, with rows that it has not seen where there are some.
        own, rows = load(model, str(chosen)), data or "bibtex"
        subject = TimedModel.of(own, dataset_for(own, rows), f"{model} on {rows}")
    record = run.measure(subject)
    paths = run.write(record, out)
    run.tell_what_is_missing(record)
    if json:
        show_json(record["figures"])
        return
    for table in run.tables_of(record):
        show_table(*table)
    say(run.machine_in_words(record))
    say(f"Wrote {', '.join(map(str, paths))}")


EXPERIMENTS = (table1, table2, table3, structure, claims, convergence, objectives)
EXPERIMENTS += (known, questions, noise, ocr, twitter, chunking)


def __getattr__(name: str) -> object:
    """Make the group ``reproduce`` when the command line asks for it."""
    if name != "reproduce":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cyclopts import App

    group = App(name="reproduce", help="Make a table or figure of the paper.")
    for experiment in EXPERIMENTS:
        group.command(experiment)
    return group
