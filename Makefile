# make demo       trains on the data in data/ and prints the quality
# make test       every check and test (what .ci/run calls)
# make test-rdma  only the tests of RDMA: in guests with soft-RoCE, or on GANNET_RDMA_DEVICE=name
# make test-ecosystem  tests with programs of others that take gigabytes: PyTorch, TensorFlow; clients of `serve`
# make test-kafka  tests of topics of Kafka, with a broker that it installs
# make book       builds the pages into a site: target/book/html (the first time it installs mdBook, some minutes)
# make soak       chaos: GANNET_SOAK_ROUNDS (20) jobs of each mode whose workers and servers are killed; then the
#                 randomised tests for SECONDS seconds (default 600; 0: chaos alone)
.PHONY: demo test test-rdma test-ecosystem test-kafka soak bench book clean
SECONDS ?= 600

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh

test-rdma:
	@scripts/test_rdma.sh

test-ecosystem:
	@scripts/test_ecosystem.sh

test-kafka:
	@scripts/test_kafka.sh

soak:
	@scripts/soak.sh $(SECONDS)

bench:
	cargo run --release -p gannet-cli -- bench

book:
	@scripts/book.sh

clean:
	cargo clean
