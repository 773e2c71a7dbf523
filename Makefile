# Short names for the commands one needs often. The work is done by cargo and config/*.sh.

FUZZ_SECS ?= 60
HOST = $(shell rustc --print host-tuple)

.PHONY: demo test bench soak sanitize fuzz install uninstall

# Messages there and back between two network namespaces, from C.
demo:
	@config/demo.sh

test:
	@config/setup.sh
	cargo test --workspace --features mutants

bench:
	@config/setup.sh
	cargo bench --workspace
	cargo run --release -- bench ring
	cargo run --release -- bench net
	cargo run --release -- bench waits

# The random tests at full length: hours instead of minutes. DEMIHOMA_SOAK=1 tells them so. Then
# larger worlds of trouble, from a seed that no run had before, until somebody stops it.
soak:
	@config/setup.sh
	DEMIHOMA_SOAK=1 cargo test --workspace --features mutants --release
	cargo run --profile soak -- sim chaos --seeds 0 --seed $$(date +%s)000000 --rpcs 300

# The unit tests under AddressSanitizer; then the C programs that make every mistake, under
# AddressSanitizer and valgrind (`make test` runs these too). RUSTC_BOOTSTRAP lets a stable compiler
# take the flag; the target is named so that build scripts and macros stay as they are.
sanitize:
	@config/setup.sh
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
		cargo test --workspace --lib --target $(HOST) --target-dir target/sanitize
	cargo test --test capi_checked

# Feeds parsers, stack and endpoints for FUZZ_SECS seconds each with what a coverage-guided fuzzer thinks up.
fuzz:
	@config/setup.sh
	@config/fuzz.sh $(FUZZ_SECS)

# PREFIX (default /usr/local) says where; DESTDIR is for those who make packages.
install:
	@config/setup.sh
	@config/install.sh install

uninstall:
	@config/install.sh uninstall
