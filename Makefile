# Two commands do everything: `make demo` and `make test`. The rest are their parts.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo pictures docs test build wheels check-wheel lint fmt bench faults oracles vopr size clean
help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/  /'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.deps: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.7,<2'
	$(BIN)/python -c "import tomllib;d=tomllib.load(open('pyproject.toml','rb'));p=d['project'];print('\n'.join(sum([*p['optional-dependencies'].values(),*d['dependency-groups'].values()],p['dependencies'])))" > $(VENV)/deps.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/deps.txt
	@touch $@

build: $(VENV)/.deps   ## build the release core into .venv
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --quiet
	$(BIN)/python -m compileall -q python  # where PYTHONDONTWRITEBYTECODE is set, each start would compile all

demo: build      ## build, then run the quickstart and print its summary
	$(BIN)/kvsim simulate -c scenarios/quickstart.yaml

pictures: build  ## draw the pictures of the pages again, from real runs
	$(BIN)/kvsim simulate -c preset:quickstart -o $(VENV)/quickstart --force --quiet >/dev/null
	for picture in hit-curve waterfall sessions; do \
	  $(BIN)/kvsim plot $(VENV)/quickstart $$picture -o docs/pictures/$$picture.svg --force || exit 1; done

docs: build      ## build the site of docs/ into site/, strictly: a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

test: build lint ## build, then every test of both languages
	cargo test --profile checked --quiet --workspace --exclude kvsim-py
	$(BIN)/python -m pytest -n 2 --dist worksteal

wheels: $(BIN)/python   ## an sdist and, built from it, a wheel for any Linux of glibc 2.17 on, in dist/
	# A source distribution has fixed file times, by which cargo would take an earlier build for a new one.
	rm -rf dist target/wheels
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'maturin[zig]>=1.7,<2'
	CARGO_TARGET_DIR=$(CURDIR)/target/wheels PATH=$(CURDIR)/$(BIN):$$PATH \
	  $(BIN)/maturin build --release --quiet --zig --compatibility manylinux2014 --sdist -o dist

check-wheel: wheels  ## install the wheel where there is no Rust: run, report, pictures, beside kvcache-simulator
	$(BIN)/python tests/clean_install dist

lint: build      ## formatting, lints, types and the stub of both languages
	cargo fmt --all --check
	cargo clippy --release --quiet --workspace --all-targets -- -D warnings
	$(BIN)/ruff check python tests benches
	$(BIN)/ruff format --check python tests benches
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest --concise --mypy-config-file pyproject.toml kvcache_sim._core

bench: build     ## print the benchmarks of both languages; BASE=COMMIT compares whole runs with that commit's build
ifdef BASE
	$(BIN)/python benches/compare_builds.py $(BASE) $(ARGS)
else
	cargo bench --quiet -p kvsim-core
	KVSIM_BENCH_OLD=$(OLD) $(BIN)/python -m pytest benches --benchmark-only --benchmark-disable-gc -p no:xdist
endif

oracles: build   ## drive engines' own cache classes, from their wheels, and compare; KVSIM_EXAMPLES=3000 for more streams
	$(BIN)/python tests/engine_oracles/__main__.py

faults: build    ## plant the faults of tests/planted_faults and report which of them the tests catch; ARGS="--part 1/4"
	$(BIN)/python tests/plant.py $(ARGS)

vopr: build      ## random scenarios with faults until something is found; MINUTES=10 SEED=7 (fresh without) ARGS="--jobs 4"
	$(BIN)/python tests/vopr --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

size: $(BIN)/python      ## print the lines of code by package, without blank lines, comments and docstrings
	$(BIN)/python benches/code_lines.py

fmt: $(VENV)/.deps   ## format both languages
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet python tests benches
	$(BIN)/ruff format --quiet python tests benches

clean:           ## remove what was built
	rm -rf $(VENV) target dist site
