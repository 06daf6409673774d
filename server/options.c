#include "server/options.h"

#include <stdlib.h>
#include <string.h>

typedef enum option_kind { TEXT, FLAG, COUNT, BYTES, SECONDS } option_kind;

/* One option: where its value goes in fb_serve_options, and how it is read. */
typedef struct option {
    const char *name, *argument, *help;
    option_kind kind;
    size_t offset; /* of a const char *, bool, unsigned (COUNT, SECONDS in ms) or, with is_wide, a 64-bit number */
    bool is_wide;
    uint64_t minimum, maximum;
} option;

#define AT(member) offsetof(fb_serve_options, member)

static const option table[] = {
    {"listen", "ADDRESS:PORT", "where to listen; port 0 picks a free one (127.0.0.1:8080)", TEXT, AT(http.listen), 0, 0, 0},
    {"insecure-listen", NULL, "allow an address beyond this machine: there is no authentication yet", FLAG, AT(insecure_listen),
     0, 0, 0},
    {"data", "DIR", "the data folder (./.foldback)", TEXT, AT(data), 0, 0, 0},
    {"access-log", "FILE|-|off", "JSON lines, one a request; - is standard error (-)", TEXT, AT(access_log), 0, 0, 0},
    {"max-body", "BYTES", "largest body after decompression (1G)", BYTES, AT(http.body_limit), 1, 1024, (uint64_t)4 << 30},
    {"max-body-memory", "BYTES", "all bodies held at once (4G)", BYTES, AT(http.body_memory_limit), 1, 1024, UINT64_MAX},
    {"max-nodes", "N", "most nodes of a graph (2000000)", COUNT, AT(limits.max_nodes), 1, 1, UINT32_MAX},
    {"max-nesting", "N", "arrays and objects open at once in a graph (64)", COUNT, AT(limits.max_nesting), 1, 8, 1000},
    {"workers", "N", "requests at work at once (32)", COUNT, AT(http.worker_threads), 0, 1, 1024},
    {"io-threads", "N", "threads that read and write sockets (2)", COUNT, AT(http.io_threads), 0, 1, 64},
    {"max-queue", "N", "requests that wait for a worker (256)", COUNT, AT(http.queue_limit), 0, 1, 1 << 20},
    {"max-connections", "N", "open connections (1024)", COUNT, AT(http.connection_limit), 0, 1, 1 << 20},
    {"max-connections-per-address", "N", "of one address; 0 is no limit (0)", COUNT, AT(http.connection_limit_per_address), 0,
     0, 1 << 20},
    {"cache", "BYTES", "memory for decoded graphs (512M)", BYTES, AT(cache_bytes), 1, 0, UINT64_MAX},
    {"header-timeout", "SECONDS", "to the end of a request's headers (10)", SECONDS, AT(http.header_timeout_ms), 0, 1, 86400},
    {"idle-timeout", "SECONDS", "between requests on a connection (60)", SECONDS, AT(http.idle_timeout_ms), 0, 1, 86400},
    {"body-timeout", "SECONDS", "for a body, before the minimum rate counts (30)", SECONDS, AT(http.body_timeout_ms), 0, 1,
     86400},
    {"minimum-rate", "BYTES", "of a body or an answer, per second (64K)", BYTES, AT(http.minimum_rate), 0, 1, 1 << 30},
    {"stop-timeout", "SECONDS", "for running requests when the service is stopped (30)", SECONDS, AT(stop_timeout_ms), 0, 0,
     86400},
    {"help", NULL, "this text", FLAG, AT(wants_help), 0, 0, 0},
};

fb_serve_options fb_serve_options_default(void) {
    return (fb_serve_options){
        .http = fb_http_config_default(),
        .data = "./.foldback",
        .access_log = "-",
        .cache_bytes = (size_t)512 << 20,
        .stop_timeout_ms = 30000,
    };
}

void fb_serve_options_print(FILE *out) {
    fputs("usage: foldback serve [options]\n\n"
          "Serves the HTTP API until SIGTERM or SIGINT, then finishes what runs and exits; a second signal ends it at once.\n"
          "Prints one line when it is ready: listening on http://127.0.0.1:8080\n\n",
          out);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        fprintf(out, "  %-34s %s\n", left, table[i].help);
    }
    fputs("\nBYTES take the suffixes K, M and G. Exit status: 0 done, 1 failed, 2 wrong usage, 3 the data folder is in use.\n",
          out);
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static bool read_number(const char *text, bool takes_suffix, uint64_t *out) {
    if (*text < '0' || *text > '9' || strlen(text) > 18) return false;
    char *end;
    uint64_t number = strtoull(text, &end, 10), factor = 1;
    if (takes_suffix && (*end == 'K' || *end == 'k')) factor = (uint64_t)1 << 10;
    else if (takes_suffix && (*end == 'M' || *end == 'm')) factor = (uint64_t)1 << 20;
    else if (takes_suffix && (*end == 'G' || *end == 'g')) factor = (uint64_t)1 << 30;
    if (factor > 1) end++;
    *out = number * factor;
    return !*end && number <= UINT64_MAX / factor;
}

static bool set_number(const option *one, const char *text, char *place, char *message, size_t message_size) {
    uint64_t number;
    if (!read_number(text, one->kind == BYTES, &number) || number < one->minimum || number > one->maximum) {
        snprintf(message, message_size, "--%s %s: expected %s, at least %llu%s", one->name, text,
                 one->kind == BYTES ? "a number of bytes such as 64M" : "a number", (unsigned long long)one->minimum,
                 one->maximum == UINT64_MAX ? "" : ", and not so large");
        return false;
    }
    if (one->is_wide) memcpy(place, &number, sizeof number);
    else memcpy(place, &(unsigned){(unsigned)(one->kind == SECONDS ? number * 1000 : number)}, sizeof(unsigned));
    return true;
}

static const option *find_option(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0) return &table[i];
    }
    return NULL;
}

bool fb_serve_options_read(int argc, char **argv, fb_serve_options *options, char *message, size_t message_size) {
    for (int i = 0; i < argc; i++) {
        const char *name = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
        const char *equals = strchr(name, '=');
        const option *one = find_option(name, equals ? (size_t)(equals - name) : strlen(name));
        if (!one || (one->kind == FLAG && equals)) {
            snprintf(message, message_size, "there is no option %s; foldback serve --help lists them", argv[i]);
            return false;
        }
        char *place = (char *)options + one->offset;
        if (one->kind == FLAG) {
            memcpy(place, &(bool){true}, sizeof(bool));
            continue;
        }
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value || !*value) {
            snprintf(message, message_size, "--%s needs a value: %s", one->name, one->argument);
            return false;
        }
        if (one->kind == TEXT) memcpy(place, &value, sizeof value);
        else if (!set_number(one, value, place, message, message_size)) return false;
    }
    return true;
}
