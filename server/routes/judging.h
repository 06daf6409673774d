/* A verdict on two graphs, as requests ask for it and as it is answered. */
#ifndef FB_ROUTES_JUDGING_H
#define FB_ROUTES_JUDGING_H

#include "core/validation/validation.h"
#include "server/routes/input.h"

#define FB_JUDGING_MEMBERS "seed", "samples", "inputs", "tolerance", "random_weights"

typedef struct fb_judging_request {
    const char *inputs; /* the digest of a file, or NULL */
    uint64_t seed;
    size_t samples; /* 0 = as many as usual */
    bool random_weights, has_tolerance;
    fb_tolerance tolerance;
    fb_array_file file; /* of the inputs */
} fb_judging_request;

/* Reads the members; texts are borrowed. Free `out->file` with fb_array_file_free. */
fb_status fb_judging_read(const json_t *members, fb_judging_request *out, fb_error *error);
/* Reads the file of inputs, each of which must be one of a graph. On failure it has responded. */
bool fb_judging_read_inputs(const fb_request *request, fb_response *response, fb_judging_request *work,
                            const fb_evaluating *evaluating, const fb_graph *a, const fb_graph *b);
/* The same without a look at the names; with what begins with "output." if has_outputs. */
bool fb_judging_open_inputs(const fb_request *request, fb_response *response, const char *digest, const char *pointer,
                            bool has_outputs, const fb_evaluating *evaluating, fb_array_file *out);
/* For fb_judge_graphs: borrows both. */
fb_judging fb_judging_of(const fb_judging_request *work, fb_evaluating *evaluating);

/* Appends the members of an answer: verdict, outputs, inputs, writes, first_node … `kept` is the blob that has the inputs of
 * the first counterexample, or NULL. */
void fb_judgement_write(const fb_judgement *found, uint64_t seed, const char *kept, fb_buffer *out);
/* Appends the member `counterexample` of an output, perhaps null; `kept` is the blob of its inputs, or NULL. */
void fb_counterexample_write(const fb_judged *one, uint64_t seed, const char *kept, fb_buffer *out);

#endif
