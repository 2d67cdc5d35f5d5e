# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help setup demo fig3 theory test check format lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    train the three runs of the demo and draw their curves (about six minutes)"
	@echo "make fig3    Figure 3: gradient norms at initialisation (about 20 minutes on two cores)"
	@echo "             [QUICK=1] [RECIPE=demo] [SEEDS=10] [PLACEMENTS='post_ln pre_ln'] [ARGS='KEY=VALUE ...']"
	@echo "make theory  each lemma and theorem: predicted, measured, verdict (about 25 minutes)"
	@echo "             [QUICK=1] [RECIPE=demo] [SEEDS=10] [PLACEMENTS=all] [ARGS='KEY=VALUE ...']"
	@echo "make test    run the tests"
	@echo "make check   ruff, mypy and the import rules"
	@echo "make setup   .venv with the pinned packages and lnexp in it (the others do it when needed)"

setup: $(STAMP)

# The lock pins every package; an interrupted installation leaves no stamp and is done again.
$(STAMP): pyproject.toml scripts/requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -r scripts/requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)
	$(BIN)/python scripts/demo.py

fig3: $(STAMP)
	$(BIN)/python scripts/fig3.py $(if $(QUICK),--quick) $(if $(RECIPE),--recipe $(RECIPE)) \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(PLACEMENTS),--placements "$(PLACEMENTS)") $(ARGS)

comma := ,
empty :=
theory: $(STAMP)
	$(BIN)/lnexp theory $(if $(QUICK),--quick) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(PLACEMENTS),--placements "$(subst $(empty) $(empty),$(comma),$(strip $(PLACEMENTS)))") \
	  $(if $(RECIPE),recipe=$(RECIPE)) $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# After a change of the dependencies: write down what is installed now.
lock: $(STAMP)
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/^\(torch==[0-9.]*\)+.*/\1/' > scripts/requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
