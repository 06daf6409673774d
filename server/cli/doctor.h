/* Findings of `foldback doctor`: facts in sections, and their faults. */
#ifndef FB_CLI_DOCTOR_H
#define FB_CLI_DOCTOR_H

#include "server/cli/cli.h"

typedef enum fb_severity { FB_WARNING, FB_FAULT } fb_severity;

/* The sections come in the order in which they were begun. A failure of memory is sticky. */
typedef struct fb_diagnosis {
    json_t *facts;    /* {section: {name: value}} */
    json_t *findings; /* [{severity, code, subject, detail, cure}] */
    json_t *section;  /* borrowed: the one that facts go to */
    const char *subject;
    bool has_fault, failed;
} fb_diagnosis;

void fb_diagnosis_section(fb_diagnosis *diagnosis, const char *name);
void fb_fact_text(fb_diagnosis *diagnosis, const char *name, const char *text); /* nothing when it is NULL */
/* Takes the passwords out of URLs in it. */
void fb_fact_url(fb_diagnosis *diagnosis, const char *name, const char *text);
/* A name that ends in "_bytes" is shown as a size. */
void fb_fact_number(fb_diagnosis *diagnosis, const char *name, int64_t number);
/* Milliseconds since 1970. */
void fb_fact_time(fb_diagnosis *diagnosis, const char *name, int64_t time);
/* Something that is wrong with the section; `cure` is what to do. */
void fb_diagnosis_find(fb_diagnosis *diagnosis, fb_severity severity, const char *code, const char *cure, const char *detail,
                       ...) __attribute__((format(printf, 5, 6)));

/* Returns when something was stored last, 0 if that is not known. */
int64_t fb_diagnose_store(fb_diagnosis *diagnosis, const char *folder, const char *database);
int fb_diagnose_service(fb_diagnosis *diagnosis, fb_cli *cli);

#endif
