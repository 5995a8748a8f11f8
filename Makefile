# Build outputs are outside the clone, so that a fresh clone finds them again and `git clean` does not cost an hour.
export SVC_CACHE_DIR ?= $(HOME)/.cache/svc
export CARGO_TARGET_DIR ?= $(SVC_CACHE_DIR)/target
SHELL := bash
# rustfmt's options for imports are still unstable, so the stable compiler has to be told that they are wanted.
FMT := RUSTC_BOOTSTRAP=1 cargo fmt --all
IMPORTS := --config imports_granularity=Crate,group_imports=One
BENCH ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo run release test test-outside chaos chaos-feed round-trip standby-reads failovers large-file fuzz fuzz-api test-devices test-arm lint fmt bench eval clean-cache

help: ## Prints the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Fetches the PostgreSQL server, the small model, and a browser, a broker and an OCR engine for the tests, once.
	@config/setup.sh

# For the whole workspace cargo selects the features that `make test` uses, so that no dependency is compiled twice; `cargo run` would
# select others and compile many dependencies again.
BUILD := cargo build --workspace --bins

demo: setup ## Builds the service and shows it at work on sample files; with KEEP=1 it stays, with its console.
	$(BUILD)
	@KEEP=$(KEEP) config/demo.sh

# What serves is optimised as a whole. The first build of it takes half an hour of processor time.
run: setup ## Runs the service, optimised, on its usual data folder, until Ctrl-C.
	$(BUILD) --release
	@exec "$$CARGO_TARGET_DIR/release/svc" serve

release: setup ## Makes a folder and a tarball that start on another machine by ./svc serve.
	@config/release.sh

# Tests often wait, for leases for example, so a machine with few processors runs two tests more at once than it has processors.
AT_ONCE := few=$$(nproc); [ "$$few" -gt 3 ] || export RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((few + 2))};

test: setup ## Runs every test, with a PostgreSQL of their own.
	$(AT_ONCE) cargo test --workspace
	@config/openapi.sh
	@config/fuzz-api.sh 1 45
	@[ -d ../shared/corpus ] || echo "left out: the corpus of real files and the Cranfield collection (no ../shared beside the repository); the samples in tests/samples stood in"
	@config/setup.sh has-browser || echo "left out: the operator console in a browser (no chromium here, and none could be fetched: config/setup.sh browser)"
	@config/setup.sh has-inspector || echo "left out: the MCP inspector as a client of /mcp (no node here, or it could not be fetched: config/setup.sh inspector)"
	@config/setup.sh has-broker || echo "left out: the bulk feed on a message broker (no RabbitMQ here, and none could be fetched: config/setup.sh broker)"
	@config/setup.sh has-ocr || echo "left out: the text of scanned pages (no tesseract here, and none could be fetched: config/setup.sh ocr)"

test-outside: setup ## Runs the tests of the service with their stored bytes in an object store instead of the database.
	$(AT_ONCE) SVC_TEST_BLOBS=s3 cargo test --workspace --test it

chaos: setup ## Hurts workers, database and network at random: make chaos SECONDS=600 SEED=7.
	cargo test --workspace --test chaos -- $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

# The test programs are those of `make test`; only the one test runs, with more messages.
chaos-feed: setup ## Kills broker, service and database under a bulk feed, and counts what became of each message: make chaos-feed MESSAGES=10000.
	SVC_TEST_STRICT=1 SVC_TEST_MESSAGES=$(or $(MESSAGES),10000) cargo test --workspace --test it -- feed::conservation

round-trip: setup ## Exports a store, imports it into another one and asks both the same: make round-trip NODES=100000.
	SVC_TEST_ROUND_TRIP_NODES=$(or $(NODES),100000) cargo test --workspace --test it -- archive::round_trip

standby-reads: setup ## Has standbys answer a search after each of many writes, while files are ingested: make standby-reads WRITES=10000.
	SVC_TEST_REPLICA_WRITES=$(or $(WRITES),10000) cargo test --workspace --test it -- replicas::standbys_answer

failovers: setup ## Kills a primary and promotes a standby that lacks its last commits, again and again: make failovers RUNS=10.
	SVC_TEST_FAILOVERS=$(or $(RUNS),10) cargo test --workspace --test it -- failover::lost

large-file: setup ## Moves a large file between database and object store, which may take 64 MiB of memory, and prints how much it takes: make large-file MIB=1024.
	SVC_TEST_LARGE_FILE=$(or $(MIB),1024) cargo test --workspace --test it -- blobs::moving::a_large_file

test-devices: ## Checks that models on ndarray, wgpu (a software Vulkan will do) and, with an NVIDIA processor, cuda give the same outputs; compiles for long.
	@config/devices.sh

test-arm: ## Tests the kernels and encoders of the models on ARM, on other processors in an emulator.
	@config/arm.sh

# The lints run without default features, with which the tests are compiled; a check of its own would compile all crates once more.
lint: ## Checks the format, the lints, the code's documentation and the licences of the dependencies.
	$(FMT) --check -- $(IMPORTS)
	cargo clippy --workspace --all-targets --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@config/deny.sh
	$(FMT) --check --manifest-path benches/Cargo.toml -- $(IMPORTS)
	cargo clippy --manifest-path benches/Cargo.toml --all-targets -- -D warnings
	$(FMT) --check --manifest-path fuzz/Cargo.toml -- $(IMPORTS)

fmt: ## Formats the code.
	$(FMT) -- $(IMPORTS)
	$(FMT) --manifest-path benches/Cargo.toml -- $(IMPORTS)
	$(FMT) --manifest-path fuzz/Cargo.toml -- $(IMPORTS)

# What is measured is what `make run` runs, and shares its dependencies; so the peer of bm25 is only built in when it is
# wanted. Only figures go to standard output.
bench: ## Runs the benchmarks, or one: make bench BENCH=name.
	@config/setup.sh >&2
	@cargo run --release --manifest-path benches/Cargo.toml $(if $(filter-out bm25%,$(BENCH)),,--features tantivy) -- $(BENCH)

eval: ## Judges each search method on a collection in the form of ../shared/ir, with and without the titles above chunks: make eval DIR=folder.
	@config/setup.sh >&2
	@EVAL_DIR="$(DIR)" cargo run --release --manifest-path benches/Cargo.toml -- eval

# The stable compiler only accepts the sanitizer's flags when it is told to.
fuzz: ## Fuzzes one reader: make fuzz TARGET=docx SECONDS=60.
	@config/fuzz.sh "$(TARGET)" "$(or $(SECONDS),60)"

fuzz-api: setup ## Fuzzes a service of its own by its contract: make fuzz-api SEED=7 FUZZ_SECONDS=600.
	$(BUILD)
	@config/fuzz-api.sh "$(or $(SEED),1)" "$(or $(FUZZ_SECONDS),60)"

# Each by its name, because a data folder may be in there too.
CACHED := target target-devices downloads postgres models browser inspector broker broker.log ocr ocr.log openapi fuzz-api deny zig release \
	bench peers peers-unstructured peers-graph peers-shapes cargo-fuzz fuzz/target fuzz/install fuzz/seeds setup.lock

clean-cache: ## Removes everything fetched and built; data folders, and what fuzzing has found, stay.
	rm -rf $(foreach part,$(CACHED),"$(SVC_CACHE_DIR)/$(part)")
