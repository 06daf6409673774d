/* Facts and findings of a diagnosis. */
#include "server/cli/doctor.h"

#include "server/service/service.h"

static void set(fb_diagnosis *diagnosis, const char *name, json_t *value) {
    diagnosis->failed |= json_object_set_new(diagnosis->section, name, value) != 0;
}

void fb_diagnosis_section(fb_diagnosis *diagnosis, const char *name) {
    diagnosis->section = json_object();
    diagnosis->subject = name;
    diagnosis->failed |= json_object_set_new(diagnosis->facts, name, diagnosis->section) != 0;
}

/* JSON text must be UTF-8. */
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

/* "postgresql://me:…@host": takes passwords out of URLs. */
static void hide_passwords(char *text) {
    for (char *at = text; (at = strstr(at, "://"));) {
        at += 3;
        size_t length = strcspn(at, "/ \t\"'");
        char *user = memchr(at, ':', length), *host = memrchr(at, '@', length);
        if (user && host && user < host) memset(user + 1, '*', (size_t)(host - user - 1));
    }
}

void fb_fact_url(fb_diagnosis *diagnosis, const char *name, const char *text) {
    char *shown = strdup(text);
    diagnosis->failed |= !shown;
    if (shown) hide_passwords(shown);
    fb_fact_text(diagnosis, name, shown);
    free(shown);
}
