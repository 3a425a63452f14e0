# Two commands do everything on a machine that has Python 3.11 or later and make.
#   make demo   install into .venv, then train and draw the paper's synthetic task
#   make test   install into .venv, then lint, type-check and test
# make test-extras tests what needs further packages, and installs those.
# make docs runs the examples and builds the site into build/site, without a network;
# docs/look_at_site.py looks at it in Chromium.
# make bench measures inference on this machine: ratios of times that are taken in turns.
# make torture takes long: it kills, floods, flips and fuzzes, and prints what held.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# One process a core; most tests of a file stay together, and share what takes long to make.
SIDE_BY_SIDE := -n auto --maxprocesses 8 --dist worksteal

.PHONY: demo test test-extras docs bench torture clean

demo: $(STAMP)
	$(BIN)/spen demo

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/pytest $(SIDE_BY_SIDE)

test-extras: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bases,docs,encoders,onnx,parquet,ray,serve]'
	$(BIN)/pytest $(SIDE_BY_SIDE) tests/extras src/spen/ray.py docs/export.md docs/encoders.md

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --jobs auto --quiet -d build/doctrees docs build/site

bench: $(STAMP)
	$(BIN)/spen bench

torture: $(STAMP)
	$(BIN)/python tests/torture

# The stamp is written last, so an interrupted install starts again.
$(STAMP): pyproject.toml paper/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "spen needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable ./paper
	touch $@

clean:
	rm -rf .venv build dist docs/gallery docs/reference
