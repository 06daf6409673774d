/* foldback doctor. */
#include "server/cli/doctor.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what was found ----------------------------------------------------------------------------------------------------- */

void fb_diagnosis_section(fb_diagnosis *diagnosis, const char *name) {
    diagnosis->section = json_object();
    diagnosis->subject = name;
    diagnosis->failed |= json_object_set_new(diagnosis->facts, name, diagnosis->section) != 0;
}

static void set(fb_diagnosis *diagnosis, const char *name, json_t *value) {
    diagnosis->failed |= json_object_set_new(diagnosis->section, name, value) != 0;
}

/* What is not UTF-8 is no text of JSON. */
void fb_fact_text(fb_diagnosis *diagnosis, const char *name, const char *text) {
    if (!text) return;
    json_t *value = json_string(text);
    set(diagnosis, name, value ? value : json_string("(not UTF-8)"));
}

void fb_fact_number(fb_diagnosis *diagnosis, const char *name, int64_t number) {
    set(diagnosis, name, json_integer(number));
}

void fb_fact_time(fb_diagnosis *diagnosis, const char *name, int64_t time) {
    time_t seconds = (time_t)(time / 1000);
    struct tm parts;
    char text[40];
    if (!gmtime_r(&seconds, &parts) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)) return;
    fb_fact_text(diagnosis, name, text);
}

void fb_diagnosis_find(fb_diagnosis *diagnosis, fb_severity severity, const char *code, const char *cure, const char *detail,
                       ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, detail);
    vsnprintf(text, sizeof text, detail, arguments);
    va_end(arguments);
    json_t *finding = json_pack("{ss, ss, ss, ss, ss}", "severity", severity == FB_FAULT ? "fault" : "warning", "code", code,
                                "subject", diagnosis->subject, "detail", text, "cure", cure);
    diagnosis->failed |= json_array_append_new(diagnosis->findings, finding) != 0;
    diagnosis->has_fault |= severity == FB_FAULT;
}

/* ---- as text ------------------------------------------------------------------------------------------------------------ */

static void print_value(const char *name, const json_t *value) {
    const char *end = strstr(name, "_bytes");
    if (json_is_string(value)) fb_screen_text(stdout, json_string_value(value));
    else if (end && !end[6]) fputs(fb_readable_size((uint64_t)json_integer_value(value)).text, stdout);
    else printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

/* "log_bytes" is shown as "log". */
static int shown_length(const char *name) {
    const char *end = strstr(name, "_bytes");
    return (int)(end && !end[6] ? end - name : (long)strlen(name));
}

static void print_section(const char *name, json_t *facts) {
    const char *fact;
    json_t *value;
    printf("%c%s\n", toupper((unsigned char)*name), name + 1);
    json_object_foreach(facts, fact, value) {
        char label[64];
        snprintf(label, sizeof label, "%.*s", shown_length(fact), fact);
        for (char *at = label; islower((unsigned char)*label) && *at; at++) /* a variable's name stays as it is */
            if (*at == '_') *at = ' ';
        printf("  %-24s ", label);
        print_value(fact, value);
        putchar('\n');
    }
    putchar('\n');
}

static void print_findings(const json_t *findings) {
    size_t i;
    json_t *one;
    json_array_foreach(findings, i, one) {
        printf("%s: %s: %s\n  ", fb_text_of(one, "severity"), fb_text_of(one, "subject"), fb_text_of(one, "code"));
        fb_screen_text(stdout, fb_text_of(one, "detail"));
        printf("\n  cure: %s\n", fb_text_of(one, "cure"));
    }
    if (!json_array_size(findings)) puts("nothing is wrong");
}

/* ---- the verb ----------------------------------------------------------------------------------------------------------- */

static int print(const fb_cli *cli, const fb_diagnosis *diagnosis) {
    if (diagnosis->failed) return fb_cli_no_memory();
    if (cli->is_json) {
        json_t *answer =
            json_pack("{sb, sO, sO}", "ok", !diagnosis->has_fault, "facts", diagnosis->facts, "findings", diagnosis->findings);
        int result = fb_cli_print_json(answer);
        json_decref(answer);
        return result;
    }
    const char *name;
    json_t *facts;
    json_object_foreach(diagnosis->facts, name, facts) print_section(name, facts);
    print_findings(diagnosis->findings);
    return FB_EXIT_DONE;
}

static void diagnose_here(fb_diagnosis *diagnosis, const fb_cli_values *values) {
    const char *database = values->database ? values->database : fb_variable("FOLDBACK_STORE");
    fb_diagnose_limits(diagnosis);
    fb_diagnose_disk(diagnosis, values->data);
    int64_t newest = fb_diagnose_store(diagnosis, values->data, database);
    fb_diagnose_clock(diagnosis, newest);
    fb_diagnose_configuration(diagnosis);
}

int fb_cli_doctor(fb_cli *cli) {
    fb_diagnosis diagnosis = {.facts = json_object(), .findings = json_array()};
    int result = FB_EXIT_DONE;
    if (cli->values.server && cli->values.database)
        return fb_complain(FB_EXIT_USAGE, "--store goes with --data, not with --server");
    fb_diagnose_versions(&diagnosis);
    if (cli->values.server) result = fb_diagnose_service(&diagnosis, cli);
    else diagnose_here(&diagnosis, &cli->values);
    if (!result) result = print(cli, &diagnosis);
    if (!result && diagnosis.has_fault) result = FB_EXIT_FAILED;
    json_decref(diagnosis.facts);
    json_decref(diagnosis.findings);
    return result;
}
