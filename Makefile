# Two commands do everything: `make demo` and `make test`. The rest are their parts.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo pictures docs test build lock wheels check-wheel audit lint fmt bench fidelity faults vopr oracles claims names size clean
help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/  /'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Versions and hashes of all that is installed: `make lock` writes requirements/ from pyproject.toml, for each Python from 3.11 on.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command 'make lock'

$(VENV)/.deps: requirements/tests.txt | $(BIN)/python
	$(INSTALL) requirements/tests.txt
	@touch $@

lock: $(BIN)/python  ## choose the newest versions for requirements/*.txt, with the hashes of their files
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1'
	$(LOCK) pyproject.toml --all-extras --group build --group docs --group test -o requirements/tests.txt
	$(LOCK) --group wheels -o requirements/wheels.txt
	$(LOCK) --group audit -o requirements/audit.txt
	$(LOCK) --group fuzz -o requirements/fuzz.txt
	$(LOCK) pyproject.toml --extra report -o requirements/wheel.txt
	$(LOCK) pyproject.toml --resolution lowest-direct -o requirements/wheel-lowest.txt
	echo kvcache-simulator | $(LOCK) --no-deps - -o requirements/shared-name.txt

audit: $(BIN)/python  ## look for known faults, licences and sources: cargo deny, pip-audit (both ask advisory databases)
	cargo install --quiet --locked --root $(VENV) cargo-deny@0.20.2
	$(BIN)/cargo-deny check
	$(INSTALL) requirements/audit.txt
	for lock in tests wheel wheels audit fuzz; do \
	  $(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r requirements/$$lock.txt || exit 1; done

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
	$(INSTALL) requirements/wheels.txt
	# The same commit and compiler give the same bytes in any folder: file times of the commit, no path of this machine.
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
	  RUSTFLAGS="--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" \
	  CARGO_TARGET_DIR=$(CURDIR)/target/wheels PATH=$(CURDIR)/$(BIN):$$PATH \
	  $(BIN)/maturin build --release --locked --quiet --zig --compatibility manylinux2014 --sdist -o dist
	$(BIN)/python tests/clean_install/bill_of_materials.py dist

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

fidelity: build  ## simulate the measured whole runs again; fail where an error is worse than docs/data/fidelity.toml states
	$(BIN)/python benches/fidelity.py $(ARGS)

claims: build    ## run the experiments of what explain claims, on twenty drawn scenarios each
	KVSIM_CLAIMS=20 $(BIN)/python -m pytest -q tests/report/test_claims.py

oracles: build   ## drive engines' own cache classes, from their wheels, and compare; KVSIM_EXAMPLES=3000 for more streams
	$(BIN)/python tests/engine_oracles/__main__.py

faults: build    ## plant the faults of tests/planted_faults and report which of them the tests catch; ARGS="--part 1/4"
	$(BIN)/python tests/plant.py $(ARGS)

# On a core that asserts its invariants and checks each sum: some faults change no result that a case looks at.
vopr: $(VENV)/.deps  ## random scenarios with faults until something is found; MINUTES=10 SEED=7 (fresh without) ARGS="--jobs 4"
	cargo build --quiet --profile checked --locked -p kvsim-py --features pyo3/extension-module
	rm -rf target/vopr/core && mkdir -p target/vopr/core && cp -r python/kvcache_sim target/vopr/core
	cp target/checked/lib_core.so target/vopr/core/kvcache_sim/_core.abi3.so
	PYTHONPATH=$(CURDIR)/target/vopr/core $(BIN)/python tests/vopr --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

# What cargo-fuzz passes without a sanitizer: the core has no unsafe code, and a stable compiler builds it.
COVERAGE := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
fuzz: build      ## give readers mutated files for MINUTES=1 each; TARGETS="jsonl log-vllm"; findings lie in target/fuzz
	$(INSTALL) requirements/fuzz.txt
	cd rust/fuzz && RUSTFLAGS="$(COVERAGE)" cargo build --release --locked --quiet --target-dir ../../target/fuzz \
	  --target $$(rustc -vV | sed -n 's/^host: //p')
	for target in $(or $(TARGETS),jsonl csv weka compressed parquet lists kv_events $$($(BIN)/python tests/fuzz/texts.py --targets)); do \
	  mkdir -p target/fuzz/corpus/$$target; seeds=tests/data/fuzz/$$target; \
	  case $$target in kv_events) set -- $(BIN)/python tests/fuzz/kv_events.py;; \
	    log-*|trace-*) set -- $(BIN)/python tests/fuzz/texts.py; seeds=tests/logs;; \
	    *) set -- target/fuzz/*/release/kvsim-fuzz;; esac; \
	  echo "$$target:"; KVSIM_FUZZ=$$target "$$@" -max_total_time=$$((60 * $(or $(MINUTES),1))) -timeout=20 -rss_limit_mb=4096 -verbosity=0 \
	    -print_final_stats=1 -artifact_prefix=target/fuzz/$$target- target/fuzz/corpus/$$target $$seeds || exit 1; done

names: build     ## write the list of public names, docs/data/public-names.txt; SINCE=v0.2.0 compares with a release
	$(BIN)/python tests/site/public_names.py $(if $(SINCE),--since $(SINCE))

size: $(BIN)/python      ## print the lines of code by package, without blank lines, comments and docstrings
	$(BIN)/python benches/code_lines.py

fmt: $(VENV)/.deps   ## format both languages
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet python tests benches
	$(BIN)/ruff format --quiet python tests benches

clean:           ## remove what was built
	rm -rf $(VENV) target dist site
