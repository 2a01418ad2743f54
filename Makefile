# demo, test, lint and bench are for people; the rest is what they stand on. CARGO_TARGET_DIR moves everything that is built.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
built := $(CARGO_TARGET_DIR)/debug
guests := $(CARGO_TARGET_DIR)/guests/wasm32-unknown-unknown/guest
# Where tests and the demo find the components; a `sandgate` in $(built) finds them by itself.
export SANDGATE_PROVIDERS := $(built)/providers
export SANDGATE_TEST_GUESTS := $(built)/test-guests

.PHONY: demo test soak lint bench providers test-guests binary tools clean

## A whole agent turn on this machine, from nothing
demo: providers
	@scripts/tools.sh bwrap
	@cargo build --locked -q -p sandgate --example agent-turn
	@$(built)/examples/agent-turn $(CURDIR)

## Everything, for real; says what it skips and why
test: tools providers test-guests
	cargo test --locked -p sandgate -p sandgate-guest -p sandgate-tests

## More schedules of the lifecycle simulation than a test run has time for: make soak SEEDS=1000000 FROM=20000
SEEDS ?= 200000
FROM ?= 20000
soak:
	SANDGATE_SIM_SEEDS=$(SEEDS) SANDGATE_SIM_FROM=$(FROM) cargo test --locked -p sandgate-tests --test all \
		simulation::no_schedule -- --nocapture

## What CI holds the code to
lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

## The table of speeds, each beside what it is held against, measured in one run
bench: tools
	$(MAKE) providers built=$(CARGO_TARGET_DIR)/release profile=release
	SANDGATE_PROVIDERS=$(CARGO_TARGET_DIR)/release/providers cargo bench --locked -p sandgate --bench speed

profile ?= dev

binary:
	@cargo build --locked -q --profile $(profile) -p sandgate --bin sandgate

providers: binary
	@scripts/build-guests.sh $(CARGO_TARGET_DIR)/guests sandgate-provider-local
	@mkdir -p $(built)/providers
	@$(built)/sandgate provider componentize $(guests)/sandgate_provider_local.wasm -o $(built)/providers/local.wasm

test-guests: binary
	@scripts/build-guests.sh $(CARGO_TARGET_DIR)/guests sandgate-test-daemon sandgate-test-hostile sandgate-test-shell-only
	@mkdir -p $(built)/test-guests
	@$(built)/sandgate provider componentize $(guests)/sandgate_test_daemon.wasm -o $(built)/test-guests/daemon.wasm
	@$(built)/sandgate provider componentize $(guests)/sandgate_test_hostile.wasm -o $(built)/test-guests/hostile.wasm
	@$(built)/sandgate provider componentize $(guests)/sandgate_test_shell_only.wasm -o $(built)/test-guests/shell-only.wasm

## What tests run against: installed where that can be done, or said
tools:
	@scripts/tools.sh bwrap rg -- redis-server busybox openssl

clean:
	cargo clean
