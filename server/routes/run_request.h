/* What POST …/optimize, …/reverse and …/rollback are asked for, from a JSON body, or from the query when the body is a bare
 * graph document or missing. */
#ifndef FB_ROUTES_RUN_REQUEST_H
#define FB_ROUTES_RUN_REQUEST_H

#include "core/bind/bind.h"
#include "core/compose/validation.h"
#include "server/app.h"
#include "server/http/http.h"
#include "server/routes/request_body.h"

/* The query parameters: `query` of the routes. */
#define FB_RECORD_QUERY "include,dry_run,note,label"
#define FB_RUN_QUERY "pass," FB_RECORD_QUERY
#define FB_OPTIMIZE_QUERY FB_RUN_QUERY ",lint,weights,strict,as,prefix,validate,seed"

#define FB_LABEL_KEY_MAX 256 /* characters */

/* What an answer has besides the run. */
typedef enum fb_include {
    FB_INCLUDE_GRAPH = 1, /* the result's document */
    FB_INCLUDE_CODE = 2,  /* its Python code */
    FB_INCLUDE_EDITS = 4, /* from the source to the result */
} fb_include;
#define FB_INCLUDES "graph, code, edits"

/* 0 when there is none of that name. */
unsigned fb_include_find(const char *name);
/* The names, separated by spaces, and back. */
void fb_includes_write(unsigned includes, fb_buffer *out);
unsigned fb_includes_read(const char *text, size_t size);

typedef enum fb_run_members {
    FB_TAKES_GRAPH = 1, /* a member "graph", or a bare document */
    FB_TAKES_LINT = 2,
    FB_TAKES_RECORD = 4, /* no passes, but what an external pass did: external.c reads it from body.members */
    FB_TAKES_WEIGHTS = 8,
    FB_TAKES_VALIDATION = 16,
} fb_run_members;

typedef struct fb_run_request {
    fb_request_body body;
    const char *graph_id;        /* when "graph" is one; else see body.graph */
    const char *graph_pointer;   /* "" for a bare document, else "/graph" */
    const json_t *passes;        /* not checked yet; NULL when there are none */
    const char *passes_pointer;  /* "/passes", or "?pass=" for the query: see fb_respond_request_error */
    const json_t *weights;       /* digests of files to bind the graph to (weights_input.h); NULL when there are none */
    const char *weights_pointer; /* "/weights" or "?weights=" */
    bool is_strict;
    fb_bind_options binding; /* how the files are read */
    fb_lint lint;
    fb_validation_mode validate;
    bool has_tolerance; /* else by dtype and pass */
    fb_tolerance tolerance;
    uint64_t seed;
    bool dry_run;
    unsigned includes; /* fb_include */
    const char *note;
    fb_store_label *labels;
    size_t label_count;
    json_t *query; /* what stood in the query, in the form of a body */
} fb_run_request;

/* Errors: those of fb_request_body_read, and FB_INVALID wrong-type, unknown-option, unknown-option-value, given-twice,
 * note-too-long, too-many-labels, bad-label, bad-digest. `out` is written on success only; free it with fb_run_request_free. */
fb_status fb_run_request_read(const fb_request *request, unsigned takes, fb_run_request *out, fb_error *error);
void fb_run_request_free(fb_run_request *run_request);

/* fb_respond_error, but an error whose pointer is "?pass=/1" names the query parameter. */
void fb_respond_request_error(fb_response *response, const fb_error *error);

#endif
