# Thin on purpose: CMake presets do the work. `make demo` and `make test` are all a new machine needs.
.PHONY: demo test test-all build bench fuzz format lint docs install package clean
JOBS ?= $(shell nproc)
MODEL ?= models/fairytale-moe-q8_0.gguf

demo: build
	build/release/moetier run -m $(MODEL) -p "Once upon a time" -n 110 --temp 0.6 --seed 5 --echo

build:
	tools/install-deps build
	cmake --preset release -DMOETIER_BUILD_TESTS=OFF > /dev/null
	cmake --build --preset release --target moetier -j $(JOBS)

test:
	tools/install-deps test
	tools/run-tests

test-all:
	tools/install-deps all
	tools/run-tests all

bench:
	tools/install-deps dev
	cmake --preset bench > /dev/null
	cmake --build --preset bench -j $(JOBS)
	build/bench/bench/bench_kernels

fuzz:
	tools/install-deps test
	tools/run-fuzzers $(or $(SECONDS_EACH),600)

format:
	tools/install-deps dev
	git ls-files '*.cpp' '*.h' '*.c' | xargs clang-format -i

lint:
	tools/install-deps dev
	tools/lint

docs: build
	build/release/moetier docs cli > docs/cli.md
	build/release/moetier docs models > docs/models.md

install: build
	cmake --build --preset release -j $(JOBS)
	cmake --install build/release

package: build
	cmake --build --preset release -j $(JOBS)
	cd build/release && cpack -G DEB

clean:
	rm -rf build
