# make without a goal lists the goals.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GOLANGCI_VERSION := v2.15.0
GOLANGCI_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/comet-tools/golangci-lint-$(GOLANGCI_VERSION)-$(shell go env GOVERSION)
GOLANGCI := $(GOLANGCI_DIR)/golangci-lint

# Empty where no release is tagged: `comet version` then tells the commit alone.
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null)
FUZZ_TIME ?= 1m
ROUNDS ?= 15
BENCH ?= .

.PHONY: help
help: ## List the goals
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary into bin/comet
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/comet ./cmd/comet

.PHONY: run
run: ## Run the server from source; ARGS="--listen 127.0.0.1:9090" passes flags on
	go run ./cmd/comet serve $(ARGS)

.PHONY: test
test: ## Run the tests, on PostgreSQL too where COMET_TEST_POSTGRES_URL is set
	go test ./...

.PHONY: race
race: ## Run the tests on both databases under the race detector
	COMET_TEST_POSTGRES_URL=$${COMET_TEST_POSTGRES_URL:-$$(.ci/postgres start)} go test -race ./...

.PHONY: ledger
ledger: ## Let 64 callers ask for 640,000 reservations on each database; takes a good while
	COMET_TEST_LEDGER_RESERVATIONS=640000 go test -run TestConcurrentCallers/NeverOverspend -timeout 180m -v ./internal/usage

.PHONY: lint
lint: $(GOLANGCI) ## Check the directions between rooms, and everything else golangci-lint knows
	$(GOLANGCI) run --allow-serial-runners
	cd tools && $(GOLANGCI) run --allow-serial-runners --config ../.golangci.yml

$(GOLANGCI):
	GOBIN=$(GOLANGCI_DIR) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: bench
bench: ## Measure the doors against raw statements in ROUNDS (15) alternating rounds; BENCH=Ledger/sqlite measures a part
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(ROUNDS)x -timeout 90m ./internal/bench

.PHONY: eval
eval: ## Print how well tool search answers its evaluation set: hit@1, hit@5, MRR
	@set -o pipefail; go test -count=1 -v -run '^TestSearchQuality$$' ./internal/toolsearch | sed -n 's/^ *eval_test.go:[0-9]*: //p'

.PHONY: generate
generate: ## Write the API description and the Go client anew from the annotations
	tools/generate

.PHONY: api-lint
api-lint: ## Lint the API description and compile a TypeScript client of it (needs Node.js)
	tools/lint/run

.PHONY: webhooks-verify
webhooks-verify: ## Have what comet delivers verified by the library of Standard Webhooks (needs Node.js)
	tools/webhooks-verify/run

.PHONY: mcp-verify
mcp-verify: ## Have MCP clients that others have written use a server (needs Node.js)
	tools/mcp-verify/run

.PHONY: examples-verify
examples-verify: ## Run the workers of examples/v5 with a server (needs Node.js and Python)
	tools/examples-verify/run

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZ_TIME (1m) each
	@set -euo pipefail; git grep --untracked -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | while IFS=: read -r file name; do \
		echo "== $$(dirname "$$file") $${name#func }"; \
		(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$${name#func }\$$" -fuzztime $(FUZZ_TIME) .); \
	done

.PHONY: postgres
postgres: ## Start a throw-away PostgreSQL for tests on port 55432 and print its URL
	@COMET_TEST_PG_PORT=$${COMET_TEST_PG_PORT:-55432} .ci/postgres start

.PHONY: postgres-stop
postgres-stop: ## Stop it and delete everything in it
	@.ci/postgres stop

.PHONY: ci
ci: ## Run everything that must hold before a change is merged
	.ci/run

.PHONY: docker
docker: ## Build the container image comet:latest
	docker build --build-arg VERSION=$(VERSION) --tag comet:latest .

.PHONY: clean
clean: ## Delete what was built; data directories stay
	rm -rf bin dist tools/lint/node_modules
