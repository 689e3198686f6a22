# Everything runs in an environment of its own, .venv, made on first use and brought up to date when
# pyproject.toml or constraints.txt change. Set PYTHON to choose the interpreter (3.11 or newer).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt
LANES  ?= 2
IN_LANES := $(if $(filter-out 1,$(LANES)),--numprocesses $(LANES) --dist loadfile)
# Tests that all cores may share, and those of them that are for use while one works.
IN_PARALLEL := not trainer and not e2e and not slow
FAST   := $(IN_PARALLEL) and not costly
# torch otherwise starts a thread per core in every rank, and ranks share cores here.
export OMP_NUM_THREADS ?= 1
# With it, every process of ours would compile all its modules again: half of the processor time of a short run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo drills containers test test-fast check measures format bench soak docs catalogues dashboards clean

help:
	@echo "make demo       train on real text, lose a rank and a node, recover, sum up (under 3 minutes)"
	@echo "                PAGES=FILE: page about it, too (a file of addresses; stoker docs paging)"
	@echo "make test       all tests"
	@echo "make test-fast  tests that need neither torch nor long runs, for use while one works (under 3 minutes)"
	@echo "make check      ruff, format, mypy, import-linter, measures of the code"
	@echo "make measures   measures of the code, and where it breaks a rule of words or of form"
	@echo "make bench      figures with their method, PASS or MISS"
	@echo "make soak       a thousand rounds of kills, hundreds more at random moments, every fault in every story"
	@echo "make drills     every drill on a real cluster, and a table of what came of each (about half an hour)"
	@echo "make containers build the image and start compose.yaml with real engines, as root (a quarter of an hour)"
	@echo "make docs       write the generated pages anew"
	@echo "make dashboards write Grafana's dashboards anew, from tools/dashboards"
	@echo "make catalogues the words of emitters anew, from their sources where they are at hand"
	@echo "make format     let ruff format and repair"
	@echo "make clean      remove the environment and all caches"

install: $(STAMP)

# The stamp goes first and comes back last: an installation that failed half-way is never taken for a whole one.
# torch is installed before DeepSpeed, whose build looks for it.
$(STAMP): pyproject.toml constraints.txt $(wildcard setup.py)
	@rm -f $(STAMP)
	@test -x $(BIN)/python || { echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing torch (once; about 200 MB for CPU, several GB with CUDA)"
	@$(PIP) torch==2.13.0
	@echo "installing DeepSpeed"
	@$(PIP) deepspeed==0.19.8
	@echo "installing stoker[trainer,dev]"
	@$(PIP) --editable '.[trainer,dev]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/stoker demo $(if $(PAGES),--pages '$(PAGES)')

# Of what is exhaustive a commit plays a quarter, any four commits in a row everything: tests/suite/share.py.
test test-fast: export STOKER_SHARE ?= commit
soak: export STOKER_SHARE := all

# First the fast and the costly tests, on all cores; then tests with real processes, which mostly wait (two of them at a time; LANES=1 runs
# one); then tests that measure the whole machine, one at a time. All three run, whichever fails. Of the tests with real processes a few
# that failed beside others are tried again alone, and named (tests/suite/second_try.py). At the end: minutes by folder.
test: $(STAMP)
	@status=0; mkdir -p .cache; rm -f .cache/test_times; export STOKER_TIMES="$(CURDIR)/.cache/test_times"; \
	$(BIN)/python -m pytest -m "$(IN_PARALLEL)" --numprocesses auto --dist worksteal || status=1; \
	$(BIN)/python -m pytest --cache-clear -m "not ($(IN_PARALLEL)) and not alone" $(IN_LANES); beside=$$?; \
	$(BIN)/python -m pytest -m "not ($(IN_PARALLEL)) and alone"; alone=$$?; \
	case $$beside$$alone in 00) ;; 01|10|11) $(BIN)/python -m tests.suite.second_try || status=1 ;; *) status=1 ;; esac; \
	$(BIN)/python -m tests.suite.budgets .cache/test_times; \
	exit $$status

test-fast: $(STAMP)
	@$(BIN)/python -m pytest -m "$(FAST)" --numprocesses auto --dist worksteal

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tests.measures 0

measures: $(STAMP)
	@$(BIN)/python -m tests.measures 20

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/python -m bench

soak: $(STAMP)
	@STOKER_SOAK=100 $(BIN)/python -m pytest -m "e2e" --timeout 3600
	@STOKER_SOAK=100 $(BIN)/python -m pytest tests/decide --timeout 3600

drills: $(STAMP)
	@$(BIN)/python -m tests.drills

containers: $(STAMP)
	@STOKER_CONTAINERS=1 $(BIN)/python -m pytest tests/deploy/test_containers.py -n0 -rs --timeout 1800

docs: $(STAMP)
	@$(BIN)/python -m runner.load --docs docs
	@$(BIN)/python -m tools.capture

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

catalogues: $(STAMP)
	@$(BIN)/python -m tools.catalogues
	@$(BIN)/python -m tools.catalogues.wordings

dashboards: $(STAMP)
	@$(BIN)/python -m tools.dashboards deploy/grafana
