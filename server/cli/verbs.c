#include "server/cli/options.h"

/* In the order of `foldback help`. */
static const struct {
    const char *group; /* above it; NULL: the same as the one before */
    const fb_verb *verbs;
} tables[] = {
    {"Optimise and undo", fb_run_verbs},
    {"Look at graphs", fb_graph_verbs},
    {NULL, fb_diff_verbs},
    {NULL, fb_show_verbs},
    {NULL, fb_ui_verbs},
    {"Passes", fb_pass_verbs},
    {NULL, fb_transformation_verbs},
    {"Checkpoints", fb_layout_verbs},
    {"Weights and numbers", fb_weights_verbs},
    {NULL, fb_evaluate_verbs},
    {NULL, fb_bisect_verbs},
    {NULL, fb_blob_verbs},
    {"Models", fb_model_verbs},
    {"The service", fb_serve_verbs},
    {NULL, fb_doctor_verbs},
    {NULL, fb_event_verbs},
    {NULL, fb_job_verbs},
    {NULL, fb_attestation_verbs},
    {NULL, fb_webhook_verbs},
    {NULL, fb_token_verbs},
    {NULL, fb_db_verbs},
    {"Help", fb_help_verbs},
    {NULL, fb_completion_verbs},
};

const fb_verb *fb_verb_at(size_t index, const char **group) {
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        size_t count = 0;
        while (tables[i].verbs[count].name) count++;
        if (index < count) {
            if (group) *group = index ? NULL : tables[i].group;
            return &tables[i].verbs[index];
        }
        index -= count;
    }
    return NULL;
}
