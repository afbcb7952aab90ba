# `make demo` and `make test` need nothing but Python 3.11+ with venv; they make .venv themselves.
PYTHON ?= python3
UV ?= $(shell command -v uv)
VENV := .venv
BIN := $(VENV)/bin
FIRST ?= 1
SEEDS ?= 500
KILLS ?= 20
INPUTS ?= 500
FAULTS ?= 50
DRIVER ?= namespaces
.PHONY: help setup demo check quick quick-orchestrator quick-others quick-drivers computing computing-orchestrator engines hosts runs more-runs kernel virtual simulations others alone netns linters tries summary ordinary as-ordinary-user as-ordinary-user-demo test coverage lint site lab lab-long conformance-long images benchmarks campaign campaign-kills campaign-hostile campaign-mutation clean
help:  ## what there is to make
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/'
setup: $(VENV)/installed  ## a virtual environment with everything in it
# uv takes torch's CPU build from PyTorch's index. pip takes it where its own index has it: torch comes first, so nothing
# after it requires another build. `make UV= setup` uses pip.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifneq ($(UV),)
	$(UV) pip install --python $(BIN)/python --torch-backend cpu --constraint constraints.txt --editable '.[test]' || { \
	echo "PyTorch's index cannot be used: torch comes from the usual one, perhaps with CUDA"; \
	$(UV) pip install --python $(BIN)/python --constraint constraints.txt --editable '.[test]'; }
else
	$(BIN)/pip install --constraint constraints.txt torch
	$(BIN)/pip install --constraint constraints.txt --editable '.[test]'
endif
	touch $@
demo: setup  ## run scenarios/dropout.yaml: 16 nodes, shaped links, dropouts
	$(BIN)/python -m orchestrator up scenarios/dropout.yaml
# The tests that need neither root nor a Docker Engine nor a guest kernel, but for the slow ones.
QUICK := -m "not (slow or netns or e2e or long)" --ignore tests/lab --ignore tests/e2e
check: setup  ## every day: lint, types, import contracts and the quick tests, in parallel; under 3 minutes on two idle cores
	@began=$$(date +%s); $(MAKE) --no-print-directory --jobs 3 lint quick; code=$$?; \
	echo "make check took $$(($$(date +%s) - began)) s"; exit $$code
quick-orchestrator quick-others quick-drivers computing computing-orchestrator engines hosts runs more-runs virtual simulations others alone netns ordinary: export OMP_NUM_THREADS = 1  # as nodes do: torch's threads hold one another up on a busy host
DRIVERS := $(addprefix tests/orchestrator/,agent drivers serve)
quick: quick-orchestrator quick-others quick-drivers  # the last takes the place of lint, so that all end together
quick-orchestrator: setup
	$(BIN)/python -m pytest -q $(QUICK) $(addprefix --ignore ,$(DRIVERS)) tests/orchestrator
quick-drivers: setup
	$(BIN)/python -m pytest -q $(QUICK) $(DRIVERS)
quick-others: setup
	$(BIN)/python -m pytest -q $(QUICK) --ignore tests/orchestrator
# All tests, so many processes at a time. What takes longest starts first, and the last ones are short, so that all end
# together. hosts, engines and runs mostly wait: they leave a processor of two to what computes. netns and the ordinary
# user wait more than they compute, and are patient. Whole runs that measure this host come last and alone.
LANES ?= 4
# CI also follows README on a machine that has nothing else. There an ordinary user runs the tests that depend on the user.
ORDINARY_USER := $(if $(CI),as-ordinary-user)
ALL := $(if $(CI),kernel) hosts others engines runs more-runs computing simulations $(ORDINARY_USER) computing-orchestrator netns lab virtual linters
COMPUTING := not (e2e or slow or engine or netns or alone or lab)
computing: setup
	@$(call at-its-end,$(call tests,-m "$(COMPUTING)" --ignore tests/orchestrator))
computing-orchestrator: setup
	@$(call at-its-end,$(call tests,-m "$(COMPUTING)" tests/orchestrator))
engines: setup
	@$(call at-its-end,$(call tests,-m "engine and not (alone or lab)" --ignore tests/swarm))
hosts: setup
	@$(call at-its-end,$(call tests,-m "engine and not (alone or lab)" tests/swarm))
LONG := (e2e or slow) and not (engine or netns or alone or lab or long or virtual)
runs: setup
	@$(call at-its-end,$(call tests,-m "$(LONG)" --ignore-glob "tests/e2e/test_[l-z]*.py" tests/e2e))
more-runs: setup
	@$(call at-its-end,$(call tests,-m "$(LONG)" --ignore-glob "tests/e2e/test_[a-k]*.py" tests/e2e))
# Runs in virtual time need a kernel, which takes minutes of a processor. CI builds it from the start on, by a make that
# has its own options and jobs.
kernel: setup
	@$(call at-its-end,MAKEFLAGS= $(BIN)/python -m orchestrator kernel build || test -z "$$EDGEBED_ALL_PROGRAMS")
virtual: setup $(if $(CI),kernel)
	@$(call at-its-end,$(call tests,-m virtual tests/e2e/test_virtual.py))
lab: setup $(if $(CI),kernel)  ## the kernel engine in a guest in virtual time, which `edgebed kernel build` makes a kernel for
	@$(call at-its-end,$(call tests,tests/lab))
SIMULATIONS := tests/orchestrator/drivers/sim tests/campaign
simulations: setup
	@$(call at-its-end,$(call tests,-m "$(LONG)" $(SIMULATIONS)))
others: setup
	@$(call at-its-end,$(call tests,-m "$(LONG)" --ignore tests/e2e $(addprefix --ignore ,$(SIMULATIONS))))
# A lane whose output is shown when it has ended, so that the lines of several processes do not mix. Beside it lie how
# long it took, the processor time of its processes and how long each test took (JUnit). `tests.lanes` sums them up.
LOGS := .pytest_cache/logs
define at-its-end
mkdir -p $(LOGS); rm -f $(LOGS)/$@.tries; began=$$(date +%s); { $(1); } >$(LOGS)/$@ 2>&1; code=$$?; \
{ echo $$(($$(date +%s) - began)); times; } >$(LOGS)/$@.times; cat $(LOGS)/$@; exit $$code
endef
define tests
EDGEBED_TRIES=$(CURDIR)/$(LOGS)/$@.tries $(BIN)/python -m pytest --junitxml=$(LOGS)/$@.xml $(1)
endef
alone: setup
	@$(call at-its-end,$(call tests,-m "alone and not lab"))
netns: setup
	@$(call at-its-end,$(call tests,-m "netns and not (alone or lab)"))
# What depends on who runs it: namespaces, rights, control groups, and the folders of others.
ORDINARY := tests/conformance/test_drivers.py tests/e2e/test_measured.py::test_loss_of_echoes tests/e2e/test_rights.py \
    tests/e2e/test_working_directory.py tests/node/process tests/orchestrator/fabric \
    tests/orchestrator/host tests/orchestrator/planning/copies/test_scenario_folder.py tests/orchestrator/run/control/test_commands.py \
    tests/orchestrator/run/test_down.py tests/orchestrator/verbs/test_doctor.py::test_an_ordinary_users_path
FOR_ANY_USER := TestByPrograms or TestMoves or TestFaults or test_trunk_media or test_streams or test_training or \
    TestSuperPackets or test_more_than_a_pipe_holds
ordinary: setup  ## the tests that depend on who runs them
	$(BIN)/python -m pytest -m "not engine" -k "not ($(FOR_ANY_USER))" $(ORDINARY)
as-ordinary-user: setup
	@$(call at-its-end,.ci/fresh-machine make && .ci/fresh-machine tests)
as-ordinary-user-demo: setup
	@$(call at-its-end,.ci/fresh-machine demo)
linters: setup
	@$(call at-its-end,$(MAKE) --no-print-directory lint)
# Measurements that are tried again and again hide a fault, so CI limits how often that is needed on average.
tries: setup
	@$(BIN)/python -m tests.tries $(LOGS)
# What each lane took: .pytest_cache/logs/summary.
summary: setup
	@$(BIN)/python -m tests.lanes $(LOGS)
# What takes long is in the log. A test that fails is tried once more, since a host may stand still for a moment. At most
# five in each step are, and the log shows the error of each (RERUN), so that a test that fails now and then is seen.
test ordinary: export PYTEST_ADDOPTS := --durations=25 --reruns=1 --max-suite-reruns=5 --rerun-show-tracebacks $(PYTEST_ADDOPTS)
test: setup  ## lint, types, import contracts, all tests
	@mkdir -p $(LOGS); rm -f $(LOGS)/*.times; { date +%s; head -n 1 /proc/stat; } >$(LOGS)/start; \
	code=0; for step in "$(ALL)" alone $(if $(CI),tries as-ordinary-user-demo) summary; do \
	    $(MAKE) --no-print-directory --keep-going --jobs $(LANES) $$step || code=1; done; \
	tail -n 1 $(LOGS)/alone; exit $$code  # the last line is pytest's closing line
coverage: setup  ## how much of the product the quick tests reach, and the files they reach least
	$(BIN)/coverage run --source edgebed,netem,node,orchestrator -m pytest -q $(QUICK) $(addprefix tests/,edgebed netem node orchestrator)
	$(BIN)/coverage report --sort=-cover | tail -n 12
campaign: setup  ## random scenarios in the simulation, each held against what must always hold; SEEDS=n of them from FIRST=n
	$(BIN)/python -m tests.campaign --first $(FIRST) --seeds $(SEEDS)
campaign-kills: setup  ## real runs of which a random process is killed or stopped; KILLS=n of them from FIRST=n, DRIVER=docker, DEVICES=n of each edge
	$(BIN)/python -m tests.campaign.kills --first $(FIRST) --kills $(KILLS) --driver $(DRIVER) $(if $(DEVICES),--devices $(DEVICES))
campaign-hostile: setup  ## hostile input for everything that reads some: lines, runs, data, requests; INPUTS=n for each from seed FIRST=n
	$(BIN)/python -m tests.campaign.hostile --first $(FIRST) --inputs $(INPUTS)
campaign-mutation: setup  ## faults put into the code on purpose, of which the tests near them must notice 90 %; FAULTS=n for each package from seed FIRST=n
	$(BIN)/python -m tests.campaign.mutation --faults $(FAULTS) --seed $(FIRST)
SCRIPTS := orchestrator/report/script/*.js orchestrator/serve/page/*.js
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oxlint --deny-warnings $(SCRIPTS)
	$(BIN)/oxfmt --check --config orchestrator/.oxfmtrc.json $(SCRIPTS)
	$(BIN)/python -m docs.lines
	$(BIN)/python -m docs.language
	$(BIN)/python -m docs.generate --check
	$(BIN)/python -m tests.wording
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
site: setup  ## the documentation as a site, in build/site
	$(BIN)/sphinx-build -W --keep-going -q docs build/site
lab-long: setup  ## the same with more packets and for longer, some minutes: the figures of docs/explanation/fidelity.md
	$(BIN)/python -m pytest tests/lab/inside -m long
conformance-long: setup  ## every fault that an algorithm may meet, also those that a shorter test covers
	$(BIN)/python -m pytest tests/conformance -m long
images: setup  ## the images of a node and of an agent for this machine, and their sizes; with BASE=... upon another base
	PIP=$(BIN)/pip images/build.sh
	PIP=$(BIN)/pip images/build.sh agent
benchmarks: setup  ## each prints one JSON object, media a table
	for name in startup transport links media rounds training schedules messages simulation drivers; do $(BIN)/python -m benchmarks.$$name || exit 1; done
clean:  ## remove the virtual environment and caches, never a run
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
