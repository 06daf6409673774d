/* How a command line names a graph: a file, or something in the store. */
#ifndef FB_CLI_REFERENCE_H
#define FB_CLI_REFERENCE_H

#include "core/document/document.h"
#include "server/cli/cli.h"

#define FB_NAME_MAX 200 /* of a model, version or alias */

typedef enum fb_reference_kind {
    FB_REFERS_TO_FILE,    /* everything that is none of the others; "./run_…" is always a file */
    FB_REFERS_TO_GRAPH,   /* sha256:…, or at least 8 digits of it that are not a file's name */
    FB_REFERS_TO_RUN,     /* run_…: its result */
    FB_REFERS_TO_ALIAS,   /* MODEL@ALIAS */
    FB_REFERS_TO_VERSION, /* MODEL:VERSION */
} fb_reference_kind;

typedef struct fb_reference {
    fb_reference_kind kind;
    const char *text;                                   /* as it was given */
    char model[FB_NAME_MAX + 1], part[FB_NAME_MAX + 1]; /* of an alias or a version */
} fb_reference;

fb_reference fb_reference_read(const char *text);
/* Where it can be no file: MODEL/VERSION, too, as the service's answers spell it. */
fb_reference fb_reference_read_stored(const char *text);

/* /v1/graphs/{id}, /v1/runs/{run}, …/aliases/{alias} or …/versions/{version}; not for files. */
void fb_reference_address(const fb_reference *reference, fb_address *out);

/* /v1/graphs/{id of the graph}, and then `part`. */
int fb_reference_graph_address(fb_cli *cli, const fb_reference *reference, const char *part, fb_address *out);
/* The document's bytes, as they are. */
int fb_reference_bytes(fb_cli *cli, const fb_reference *reference, fb_buffer *out);
/* The graph, checked. */
int fb_reference_graph(fb_cli *cli, const fb_reference *reference, fb_graph **out);
/* The id that `text` is, or that alone begins so, of what lies below `folder` ("/v1/graphs", "/v1/blobs"). */
int fb_whole_id(fb_cli *cli, const char *folder, const char *text, char id[FB_ID_LENGTH + 1]);
/* The graph's id. */
int fb_reference_id(fb_cli *cli, const fb_reference *reference, char id[FB_ID_LENGTH + 1]);
/* What a request's member "graph" holds: the document for a file (checked before), else the id as a string. Appended. */
int fb_reference_member(fb_cli *cli, const fb_reference *reference, fb_buffer *out);

/* Reads a document; `errors` is the caller's (fb_errors_free), empty before. */
fb_status fb_read_any_document(const fb_buffer *bytes, fb_graph **out, fb_errors *errors);
/* "  /nodes/2/args/1: unknown-node: …" for each, and how many more there are. */
void fb_errors_print(const fb_errors *errors, const char *indent, FILE *out);

#endif
