# foldback. `make` builds build/foldback; `make help` lists the targets.
CC       ?= gcc
BUILD    ?= build
prefix   ?= /usr/local
DESTDIR  ?=
VERSION  := 0.1.0
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
OPTIMISE ?= -O2 -g
CFLAGS   ?=
CPPFLAGS := -I. -D_GNU_SOURCE -DFB_VERSION='"$(VERSION)"'
ifdef CI
WARNINGS += -Werror
endif
ALL_CFLAGS := -std=c17 $(WARNINGS) $(OPTIMISE) -fno-strict-aliasing -pthread $(SANITIZE) $(CFLAGS)
CORE_LIBS   := -ljansson -lcrypto -lm
SERVER_LIBS := -lmicrohttpd -lsqlite3 -lzstd -lz $(CORE_LIBS)

CORE_SOURCES   := $(shell find core -name '*.c' | sort)
SERVER_SOURCES := $(shell find server -name '*.c' | sort)
UNIT_SOURCES   := $(shell find tests/unit -name 'test_*.c' 2>/dev/null | sort)
CORE_OBJECTS   := $(CORE_SOURCES:%.c=$(BUILD)/%.o)
SERVER_OBJECTS := $(SERVER_SOURCES:%.c=$(BUILD)/%.o)
UNIT_PROGRAMS  := $(UNIT_SOURCES:%.c=$(BUILD)/%)
# A unit test links everything but main(), and the helpers beside it.
UNIT_HELPERS   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(UNIT_SOURCES),$(shell find tests/unit -name '*.c' 2>/dev/null | sort)))
SERVER_PARTS   := $(filter-out $(BUILD)/server/main.o,$(SERVER_OBJECTS))

all: $(BUILD)/foldback

$(BUILD)/libfoldback.a: $(CORE_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/foldback: $(SERVER_OBJECTS) $(BUILD)/libfoldback.a
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(SERVER_LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The store's migrations, as C arrays in the order of their names.
MIGRATIONS := $(sort $(wildcard schema/sql/*.sql))
$(BUILD)/generated/migrations.inc: $(MIGRATIONS)
	@mkdir -p $(@D)
	@for file in $^; do \
	    printf '/* %s */ static const char migration_%s[] = {\n' "$$file" "$$(basename $$file .sql)"; \
	    od -An -v -tx1 $$file | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '0};'; \
	done >$@.part
	@{ echo 'static const char *const migrations[] = {'; \
	   for file in $^; do echo "migration_$$(basename $$file .sql),"; done; echo '};'; } >>$@.part
	@mv $@.part $@
$(BUILD)/server/store/migrate.o: $(BUILD)/generated/migrations.inc
$(BUILD)/server/store/migrate.o: CPPFLAGS += -I$(BUILD)/generated

$(BUILD)/tests/unit/test_%: $(BUILD)/tests/unit/test_%.o $(UNIT_HELPERS) $(SERVER_PARTS) $(BUILD)/libfoldback.a
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(SERVER_LIBS) -lcheck -lsubunit -lrt

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all clean
.SECONDARY:
