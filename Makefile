# make demo  trains on the data in data/ and says what came out
# make test  every check and test (what .ci/run calls)
# make soak  the same randomised tests for SECONDS seconds (default 600)
.PHONY: demo test soak bench clean
SECONDS ?= 600

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh

soak:
	@scripts/soak.sh $(SECONDS)

bench:
	cargo run --release -p gannet -- bench

clean:
	cargo clean
