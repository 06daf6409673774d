/* The search of bisect.h. First the shortest run of passes that is wrong; then, of its last pass, the shortest run of matches;
 * then what else the last match needs, each by halves again. */
#include "core/compose/bisect.h"

#include <stdlib.h>
#include <string.h>

#define MOST_MATCHES 16 /* in a set that is needed together */

/* A match of an earlier pass, or of the same one before the one that was found. */
typedef struct unit {
    size_t position;
    const char *name;
} unit;

typedef struct search {
    const fb_bisect_oracle *oracle;
    const bool *is_active;
    size_t passes;
    size_t guilty;        /* position */
    fb_match_names names; /* of its matches that have a name */
    unit *units;
    size_t unit_count;
    fb_found_match kept[MOST_MATCHES];
    size_t kept_count;
    fb_match_names *only; /* scratch, by position */
    const char **items;   /* scratch, room for all units and the kept */
    fb_bisected *out;
    fb_error *error;
} search;

static fb_status judge(search *s, const fb_run_part *part, fb_outcome *out) {
    s->out->steps++;
    return s->oracle->judge(s->oracle->context, part, out, s->error);
}

/* The first bad one of the parts 1 … count, where the last is bad and "part 0" good. Parts that cannot be judged are passed
 * over; *first <= *found: those from the first on cannot be told apart. */
static fb_status find_first_bad(search *s, size_t count, fb_status (*at)(search *, size_t, fb_outcome *), size_t *steps,
                                size_t *first, size_t *found) {
    size_t good = 0, bad = count;
    fb_outcome outcome;
    while (bad - good > 1) {
        size_t middle = good + (bad - good) / 2, tried = middle;
        bool is_told = false;
        for (size_t far = 0; !is_told && far <= bad - good; far++) { /* around the middle */
            tried = far % 2 ? middle - (far + 1) / 2 : middle + far / 2;
            if (tried <= good || tried >= bad) continue;
            fb_status status = at(s, tried, &outcome);
            if (status) return status;
            ++*steps;
            is_told = outcome == FB_OUTCOME_GOOD || outcome == FB_OUTCOME_BAD;
        }
        if (!is_told) break;
        if (outcome == FB_OUTCOME_BAD) bad = tried;
        else good = tried;
    }
    *first = good + 1;
    *found = bad;
    return FB_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------------- */

/* The position behind the first `count` passes that applied something. */
static size_t end_of(const search *s, size_t count) {
    size_t i = 0;
    while (i < s->passes && (count -= s->is_active[i])) i++;
    return i + 1;
}

static fb_status judge_prefix(search *s, size_t count, fb_outcome *out) {
    return judge(s, &(fb_run_part){.passes = end_of(s, count)}, out);
}

static fb_status find_pass(search *s, bool *is_one) {
    size_t active = 0, first, found;
    for (size_t i = 0; i < s->passes; i++) active += s->is_active[i];
    fb_status status = find_first_bad(s, active, judge_prefix, &s->out->pass_steps, &first, &found);
    if (status) return status;
    s->guilty = end_of(s, found) - 1;
    s->out->first = end_of(s, first) - 1;
    *is_one = first == found;
    return FB_OK;
}

/* ---- matches of one pass ------------------------------------------------------------------------------------------------ */

static fb_status judge_matches(search *s, size_t count, fb_outcome *out) {
    memset(s->only, 0, s->passes * sizeof *s->only);
    s->only[s->guilty] = (fb_match_names){s->names.items, count};
    return judge(s, &(fb_run_part){.passes = s->guilty + 1, .only = s->only}, out);
}

/* Lists the named matches of the pass, in order and each once. */
static fb_status list_named(search *s, size_t position, fb_match_names *out) {
    fb_match_names all;
    fb_status status = s->oracle->list(s->oracle->context, position, &all, s->error);
    if (status) return status;
    const char **items = fb_arena_alloc(&s->out->arena, (all.count + 1) * sizeof *items);
    if (!items) return fb_fail_memory(s->error);
    out->items = items;
    out->count = 0;
    for (size_t i = 0; i < all.count; i++)
        if (*all.items[i]) items[out->count++] = all.items[i];
    return FB_OK;
}

/* ---- what a match needs ------------------------------------------------------------------------------------------------- */

static void add_name(search *s, size_t position, const char *name, size_t *used) {
    fb_match_names *of = &s->only[position];
    s->items[(*used)++] = name;
    of->count++;
}

/* The kept matches and the first `count` units, and no others. Units are in the order of their positions. */
static fb_status judge_units(search *s, size_t count, fb_outcome *out) {
    size_t used = 0, next = 0;
    for (size_t position = 0; position <= s->guilty; position++) {
        s->only[position] = (fb_match_names){s->items + used, 0};
        for (; next < count && s->units[next].position == position; next++) add_name(s, position, s->units[next].name, &used);
        for (size_t i = 0; i < s->kept_count; i++)
            if (s->kept[i].position == position) add_name(s, position, s->kept[i].name, &used);
    }
    fb_status status = judge(s, &(fb_run_part){.passes = s->guilty + 1, .only = s->only}, out);
    if (*out != FB_OUTCOME_BAD) *out = FB_OUTCOME_GOOD; /* it is asked for what makes it bad */
    return status;
}

/* All matches before the one that was found. */
static fb_status list_units(search *s, size_t before) {
    size_t capacity = 0;
    for (size_t position = 0; position <= s->guilty; position++) {
        fb_match_names names = {s->names.items, before};
        fb_status status = position < s->guilty && s->is_active[position] ? list_named(s, position, &names) : FB_OK;
        if (status) return status;
        if (position < s->guilty && !s->is_active[position]) continue;
        if (s->unit_count + names.count > capacity) {
            capacity = 2 * (s->unit_count + names.count);
            unit *units = realloc(s->units, capacity * sizeof *units);
            if (!units) return fb_fail_memory(s->error);
            s->units = units;
        }
        for (size_t i = 0; i < names.count; i++) s->units[s->unit_count++] = (unit){position, names.items[i]};
    }
    s->items = calloc(s->unit_count + MOST_MATCHES + 1, sizeof *s->items);
    return s->items ? FB_OK : fb_fail_memory(s->error);
}

/* The kept match is bad behind all units; finds those that it is not bad without. */
static fb_status find_needed(search *s) {
    fb_outcome outcome = FB_OUTCOME_UNKNOWN;
    fb_status status = judge_units(s, 0, &outcome);
    while (!status && outcome != FB_OUTCOME_BAD && s->unit_count && s->kept_count < MOST_MATCHES) {
        size_t first, found, steps = 0;
        status = find_first_bad(s, s->unit_count, judge_units, &steps, &first, &found);
        if (status) break;
        s->unit_count = found - 1;
        s->kept[s->kept_count++] = (fb_found_match){s->units[found - 1].position, s->units[found - 1].name};
        status = judge_units(s, 0, &outcome);
    }
    s->out->is_smallest = !status && outcome == FB_OUTCOME_BAD;
    return status;
}

static fb_status find_match(search *s) {
    size_t first, found;
    fb_outcome outcome = FB_OUTCOME_UNKNOWN;
    s->kept[0] = (fb_found_match){.position = s->guilty};
    s->kept_count = 1;
    fb_status status = list_named(s, s->guilty, &s->names);
    if (!status && s->names.count) status = judge_matches(s, s->names.count, &outcome);
    if (status || outcome != FB_OUTCOME_BAD) return status; /* not one by one */
    status = find_first_bad(s, s->names.count, judge_matches, &s->out->match_steps, &first, &found);
    if (status) return status;
    s->kept[0].name = s->names.items[found - 1];
    status = list_units(s, found - 1);
    return status ? status : find_needed(s);
}

/* ---- all of it ---------------------------------------------------------------------------------------------------------- */

static fb_status keep_found(search *s) {
    fb_bisected *out = s->out;
    out->matches = fb_arena_alloc(&out->arena, s->kept_count * sizeof *out->matches);
    if (!out->matches) return fb_fail_memory(s->error);
    out->count = s->kept_count;
    for (size_t i = 0; i < s->kept_count; i++) out->matches[i] = s->kept[i];
    return FB_OK;
}

/* The whole run without the first match, by the names of the others. */
static fb_status judge_rest(search *s) {
    const char *name = s->kept[0].name;
    if (!name) return FB_OK;
    const char **others = fb_arena_alloc(&s->out->arena, (s->names.count + 1) * sizeof *others);
    if (!others) return fb_fail_memory(s->error);
    memset(s->only, 0, s->passes * sizeof *s->only);
    s->only[s->guilty].items = others;
    for (size_t i = 0; i < s->names.count; i++)
        if (strcmp(s->names.items[i], name) != 0) others[s->only[s->guilty].count++] = s->names.items[i];
    return judge(s, &(fb_run_part){.passes = s->passes, .only = s->only}, &s->out->rest);
}

/* True if there is something to search: the whole run is bad, and without any pass it is not. */
static fb_status begin(search *s, bool asks_source, bool *is_bad) {
    fb_bisected *out = s->out;
    fb_outcome source = FB_OUTCOME_GOOD;
    fb_status status = judge(s, &(fb_run_part){.passes = s->passes}, &out->outcome);
    *is_bad = !status && out->outcome == FB_OUTCOME_BAD;
    if (*is_bad && asks_source) status = judge(s, &(fb_run_part){0}, &source);
    out->is_source_bad = source != FB_OUTCOME_GOOD;
    *is_bad &= !out->is_source_bad;
    return status;
}

fb_status fb_bisect(const fb_bisect_oracle *oracle, const bool *is_active, size_t passes, bool asks_source, fb_bisected *out,
                    fb_error *error) {
    fb_bisected found = {.rest = FB_OUTCOME_UNKNOWN};
    search s = {.oracle = oracle,
                .is_active = is_active,
                .passes = passes,
                .only = calloc(passes + 1, sizeof *s.only),
                .out = &found,
                .error = error};
    bool is_one = false, is_bad = false;
    fb_status status = s.only ? begin(&s, asks_source, &is_bad) : fb_fail_memory(error);
    if (!status && is_bad) status = find_pass(&s, &is_one);
    s.kept[0] = (fb_found_match){.position = s.guilty};
    s.kept_count = is_bad;
    if (!status && is_one) status = find_match(&s);
    if (!status && is_one) status = judge_rest(&s);
    if (!status && is_bad) status = keep_found(&s);
    free(s.only);
    free(s.units);
    free(s.items);
    if (status) fb_bisected_free(&found);
    else *out = found;
    return status;
}

void fb_bisected_free(fb_bisected *found) {
    fb_arena_free(&found->arena);
    *found = (fb_bisected){0};
}
