# The entry points of the build. The work is done by tools/, tests/run, fuzz/run and meson.build.
#
#   make [OPTIONS=-Dwerror=true]   the library and build/holdfast, with options for meson
#   make demo                 a small show
#   make install [PREFIX=/usr/local] [DESTDIR=...]
#   make install-python [PYTHON=python3] [DESTDIR=...]   the Python package (bindings/python), for that Python
#   make test [T=part]        every test, or one part (engine, memory, models, fuzz, ...)
#   make fresh                the first hour of a user and of a developer in an empty Debian (as root)
#   make lint | format        check the sources | format them
#   make fuzz [SECONDS=60] [TARGET=url]
#   make sim [S=redis] [SEED=n | N=250000]   the simulator: one history as a story, or many (sim/main.c)
#   make soak [S=redis]       the simulator, starting at a random seed, until it is stopped or finds something: soak.txt
#   make models               the Spin models, with the long searches
#   make bench [B=redis] [R=11]   the measurements, or a part of them (redis, redis/pair), in R rounds: bench.jsonl;
#                             for all of them also a page with plots, in build-plain/page
#   make lab [REPEAT=10]      the failure lab: every cell, compared with what is known of it, and report.html
#   make asan | tsan          sanitizer builds, in build-asan and build-tsan
#   make abi-record           record the library's symbols and structs as they are now
#   make deb                  Debian's packages, in build-deb
#   make dist                 a tarball, its checksum and the list of its contents (SPDX), in build-dist
#   make clean
#
# The first four need only what a user needs, and build in build/; the others build with the tests, in other
# folders (tools/build). V=1 shows all compiler commands and output.

SECONDS = 60
N = 250000
S = redis
PREFIX = /usr/local
REPEAT = 1
R = 11
PYTHON = python3
OPTIONS =

.PHONY: all demo install install-python test fresh lint format fuzz sim soak models bench lab asan tsan abi-record deb dist \
  clean needs test-needs

all: needs
	@tools/build -Dprefix='$(PREFIX)' $(OPTIONS)

needs:
	@tools/setup build

test-needs:
	@tools/setup test

demo: all
	@build/holdfast demo

# Programs find the library only after ldconfig, which only root can run; a package with a DESTDIR runs it later.
install: all
	@tools/meson install -C build --no-rebuild --quiet
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || PATH="$$PATH:/sbin:/usr/sbin" ldconfig
	@echo "installed holdfast in $(DESTDIR)$(PREFIX)"

install-python:
	@$(PYTHON) bindings/python/make_wheel.py install $(DESTDIR)

test: test-needs
	@tests/run $(T)

fresh:
	@tests/fresh/run

lint: test-needs
	@tools/lint

format: test-needs
	@find $(wildcard include src tests bench bindings fuzz examples sim lab) -name '*.[ch]' -exec clang-format -i {} +

fuzz: test-needs
	@fuzz/run $(SECONDS) $(TARGET)

sim: test-needs
	@tools/build plain
	@build-plain/sim/sim -s $(S) $(if $(SEED),$(SEED),-n $(N))

soak: test-needs
	@tools/build plain
	@sim/soak $(S)

models: test-needs
	@models/run large

bench: test-needs
	@tools/build plain
	@bench/run -r $(R) $(B)

lab: test-needs
	@tools/build plain
	@build-plain/holdfast lab matrix --repeat $(REPEAT) --check --html report.html

asan tsan: test-needs
	@tools/build $@

abi-record: test-needs
	@tests/abi/run --record

deb:
	@tools/setup deb
	@tools/deb

dist:
	@tools/dist

clean:
	rm -rf build build-plain build-asan build-tsan build-fuzz build-deb build-dist
