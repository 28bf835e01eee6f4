# The front door: `make help` lists what there is. Each target sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo demo-shell demo-down site plan report accept backup restore test test-unit test-containers test-kernel lint bench clean
MAKEFLAGS += --no-print-directory

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 28

demo: ## provision the simulated server [GROUP_SIZE=4] [VARS="rescale_force=true"]
	@scripts/demo up $(if $(GROUP_SIZE),--extra-vars group_size=$(GROUP_SIZE)) $(if $(VARS),--extra-vars "$(VARS)")

demo-shell: ## log in to the simulated server [USER=alice]
	@scripts/demo shell $(if $(filter command,$(firstword $(origin USER))),$(USER),alice)

demo-down: ## remove the simulated server
	@scripts/demo down

site: ## provision real servers: INVENTORY=path [VARS="rescale_drain=true"]
	@scripts/site $(INVENTORY) $(if $(VARS),--extra-vars "$(VARS)")

plan: ## show what `make site` would change: INVENTORY=path [VARS="group_size=7"]
	@scripts/site --plan $(INVENTORY) $(if $(VARS),--extra-vars "$(VARS)")

report: ## who used the cards: INVENTORY=path [PERIOD="--last 14d"]
	@scripts/report $(INVENTORY) $(PERIOD)

accept: ## ask live servers whether the promises hold: INVENTORY=path
	@scripts/accept $(INVENTORY)

backup: ## save accounts, bookings, samples, accounting: INVENTORY=path [FOLDER=backups]
	@scripts/backup $(INVENTORY) $(FOLDER)

restore: ## a new server gets its newest backup, and the whole site: INVENTORY=path [FOLDER=backups]
	@scripts/backup --restore $(INVENTORY) $(FOLDER)

test: ## run every test: lint, unit, containers, kernel [SYSTEM=debian12]
	@SYSTEM=$(SYSTEM) scripts/test all

test-unit: ## run the unit tests
	@scripts/test unit

test-containers: ## run the container tests [SCENARIO=members] [SYSTEM=debian12]
	@SYSTEM=$(SYSTEM) scripts/test containers $(SCENARIO)

test-kernel: ## run the tests that need a kernel of their own [SYSTEM=debian12]
	@SYSTEM=$(SYSTEM) scripts/test kernel

lint: ## ansible-lint, yamllint, ruff, mypy, shellcheck
	@scripts/test lint

bench: ## measure, side by side with the alternative
	@scripts/bench

clean: demo-down ## remove the simulated server, the environment and all caches
	@rm -rf .venv .cache simulator/build
