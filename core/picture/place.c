/* Layers and lanes, box by box from the inside out.
 *
 *     ┌ encoder ──────────────┐      A box that is open holds layers of boxes. A line goes down from layer to layer; what must
 *     │   ┌─────┐             │      pass layers does so where nothing is in its way, or in a lane at the right; what leads
 *     │   │ add ├─────────┐   │      back, at the left. Between two layers each value has a track of its own for going
 *     │   └──┬──┘         │   │      sideways. A value that leaves or enters a box does so once, however many read it.
 *     │   ┌──┴──┐         │   │
 *     │   │dense│         │   │      All of this is done in the box's own coordinates; at the end all are moved to where the
 *     │   └──┬──┘         │   │      boxes are.
 *     │      ├────────────┘   │
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/base/sort.h"
#include "core/picture/rows.h"

enum {
    CHARACTER = 7, /* the width of one, about */
    NODE_HEIGHT = 40,
    BOX_HEIGHT = 46,
    HEADER = 30,
    MARGIN = 16,
    BESIDE = 18, /* between neighbours */
    LANE = 9,
    TRACK = 8,
    GAP = 34,     /* between layers: room for a line of text */
    ABREAST = 12, /* boxes of one layer */
    NARROWEST = 64,
};

/* One value's way through one open box, to one of the boxes in it or out of it. */
typedef struct segment {
    uint32_t box;           /* which it leads through */
    uint32_t net;           /* the box that the value comes from: segments of one net in one box share their way */
    uint32_t from, to;      /* boxes in it; 0 = enters from above, leaves below */
    int start, column, end; /* x: below `from`, while it passes layers, above `to` */
    int first_gap, last_gap;
    int first_track, last_track; /* y */
} segment;

typedef struct placing {
    fb_picture *picture;
    fb_work *work;
    segment *segments;
    uint32_t segment_count;
    size_t segment_capacity;
    uint32_t *by_box;   /* segments in the order of their boxes */
    uint32_t *first_of; /* of each box: where its begin */
    int *rank;          /* of each box, in the one around it */
    fb_map ends;        /* box and net -> segment: where a value enters or leaves */
} placing;

/* ---- segments ------------------------------------------------------------------------------------------------------------ */

static uint64_t segment_key(uint32_t box, uint32_t net, uint32_t to) {
    return ((uint64_t)box << 42) | ((uint64_t)net << 21) | to; /* boxes are fewer than 2^21 */
}

static uint32_t add_segment(placing *p, fb_map *known, uint32_t box, uint32_t net, uint32_t from, uint32_t to) {
    uint64_t key = segment_key(box, net, to);
    uint32_t at = fb_map_get(known, key);
    if (at) return at;
    if (!FB_GROW(p->segments, p->segment_count + 1, p->segment_capacity)) return 0;
    at = ++p->segment_count;
    p->segments[at] = (segment){.box = box, .net = net, .from = from, .to = to};
    return fb_map_put(known, key, at) ? at : 0;
}

static uint32_t depth_of(const fb_picture *picture, uint32_t box) {
    uint32_t depth = 0;
    for (; box; box = picture->boxes[box].parent) depth++;
    return depth;
}

/* Out of the boxes around its source, through the one that both ends are in, and into those around its target. */
static bool split_line(placing *p, fb_map *known, fb_picture_line *line) {
    const fb_picture_box *boxes = p->picture->boxes;
    uint32_t from = line->from, to = line->to;
    uint32_t up = depth_of(p->picture, from), down = depth_of(p->picture, to), count = 0;
    uint32_t *segments = fb_picture_take(&p->picture->arena, up + down, sizeof *segments);
    if (!segments) return false;
    uint32_t inward[256];
    uint32_t inward_count = 0;
    uint32_t from_depth = up, to_depth = down;
    while (boxes[from].parent != boxes[to].parent) {
        if (from_depth >= to_depth) {
            segments[count++] = add_segment(p, known, boxes[from].parent, line->from, from, 0);
            from = boxes[from].parent;
            from_depth--;
        } else {
            if (inward_count == sizeof inward / sizeof *inward) return false;
            inward[inward_count++] = to;
            to = boxes[to].parent;
            to_depth--;
        }
    }
    segments[count++] = add_segment(p, known, boxes[from].parent, line->from, from, to);
    while (inward_count) {
        uint32_t inner = inward[--inward_count];
        segments[count++] = add_segment(p, known, boxes[inner].parent, line->from, 0, inner);
    }
    for (uint32_t i = 0; i < count; i++)
        if (!segments[i]) return false;
    line->segments = segments;
    line->segment_count = count;
    return true;
}

static bool split_lines(placing *p) {
    fb_map known = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < p->picture->line_count && fb_work_goes_on(p->work, 16); i++)
        ok = split_line(p, &known, &p->picture->lines[i]);
    fb_map_free(&known);
    uint32_t boxes = p->picture->box_count;
    p->by_box = fb_picture_take(&p->picture->arena, p->segment_count + 1, sizeof *p->by_box);
    p->first_of = fb_picture_take(&p->picture->arena, boxes + 2, sizeof *p->first_of);
    if (!ok || !p->by_box || !p->first_of) return false;
    for (uint32_t i = 1; i <= p->segment_count; i++) p->first_of[p->segments[i].box + 1]++;
    for (uint32_t b = 0; b < boxes; b++) p->first_of[b + 1] += p->first_of[b];
    uint32_t *next = fb_picture_take(&p->picture->arena, boxes + 1, sizeof *next);
    if (!next) return false;
    memcpy(next, p->first_of, boxes * sizeof *next);
    for (uint32_t i = 1; i <= p->segment_count; i++) p->by_box[next[p->segments[i].box]++] = i;
    return true;
}

/* ---- sizes --------------------------------------------------------------------------------------------------------------- */

static int text_width(const char *text) {
    int characters = 0;
    for (; *text; text++) characters += ((unsigned char)*text & 0xC0) != 0x80;
    return characters * CHARACTER;
}

static int count_width(uint32_t count) {
    int digits = 1;
    for (uint32_t left = count; left > 9; left /= 10) digits++;
    return count ? (digits + 2) * CHARACTER : 0;
}

/* "+12 −36 ~84", beside the label. */
static int tally_width(const fb_picture_tally *tally) {
    int width = count_width(tally->added) + count_width(tally->removed) + count_width(tally->changed);
    return width ? width + CHARACTER : 0;
}

static void size_closed(fb_picture_box *box) {
    int bold = box->kind == FB_BOX_NODE ? 0 : text_width(box->label) / 10, label = text_width(box->label) + bold + 22,
        detail = text_width(box->detail) * 6 / 7 + 22;
    if (box->kind != FB_BOX_NODE) label += tally_width(&box->tally);
    box->width = label > detail ? label : detail;
    if (box->width < NARROWEST) box->width = NARROWEST;
    box->height = box->kind == FB_BOX_NODE ? NODE_HEIGHT : BOX_HEIGHT;
}

/* ---- layers -------------------------------------------------------------------------------------------------------------- */

typedef struct sheet {
    placing *p;
    uint32_t box, first, count; /* its children */
    const uint32_t *segments;   /* those that lead through it */
    uint32_t segment_count;
    int ranks;             /* layers */
    int *height, *top;     /* of each layer */
    int *tracks, *gap_top; /* above each layer, and below the last */
} sheet;

static segment *segment_at(const sheet *s, uint32_t i) {
    return &s->p->segments[s->segments[i]];
}

static bool leads_on(const segment *g) {
    return g->from && g->to && g->from < g->to;
}

/* By the longest path. Boxes are in the order of the document, in which a line that leads back is one of a cycle. */
static bool find_ranks(sheet *s) {
    placing *p = s->p;
    fb_arena *arena = &p->picture->arena;
    uint32_t *in = fb_picture_take(arena, s->count + 2, sizeof *in),
             *order = fb_picture_take(arena, s->segment_count, sizeof *order);
    int *soonest = fb_picture_take(arena, s->count + 1, sizeof *soonest);
    if (!in || !order || !soonest) return false;
    for (uint32_t i = 0; i < s->segment_count; i++)
        if (leads_on(segment_at(s, i))) in[segment_at(s, i)->to - s->first + 1]++;
    for (uint32_t i = 0; i < s->count; i++) in[i + 1] += in[i];
    uint32_t *next = fb_picture_take(arena, s->count + 1, sizeof *next);
    if (!next) return false;
    memcpy(next, in, s->count * sizeof *next);
    for (uint32_t i = 0; i < s->segment_count; i++)
        if (leads_on(segment_at(s, i))) order[next[segment_at(s, i)->to - s->first]++] = i;
    for (uint32_t c = 0; c < s->count; c++) {
        int rank = 0;
        for (uint32_t i = in[c]; i < in[c + 1]; i++) {
            int above = p->rank[segment_at(s, order[i])->from] + 1;
            if (above > rank) rank = above;
        }
        p->rank[s->first + c] = rank;
    }
    /* A box that reads nothing goes just above its reader, except that inputs go to the top. */
    for (uint32_t i = 0; i < s->segment_count; i++) {
        const segment *g = segment_at(s, i);
        if (!leads_on(g)) continue;
        int *found = &soonest[g->from - s->first], rank = p->rank[g->to];
        if (!*found || rank < *found) *found = rank;
    }
    for (uint32_t c = 0; c < s->count; c++) {
        const fb_picture_box *box = &p->picture->boxes[s->first + c];
        bool is_input = box->kind == FB_BOX_NODE && strcmp(box->detail, "input") == 0;
        if (in[c] == in[c + 1] && soonest[c] > 1 && !is_input) p->rank[s->first + c] = soonest[c] - 1;
    }
    return true;
}

/* Layers that would be too wide become several. */
static bool wrap_ranks(sheet *s) {
    placing *p = s->p;
    int most = 0;
    for (uint32_t c = 0; c < s->count; c++)
        if (p->rank[s->first + c] > most) most = p->rank[s->first + c];
    int *filled = fb_picture_take(&p->picture->arena, (size_t)most + 2, sizeof *filled);
    int *begin = fb_picture_take(&p->picture->arena, (size_t)most + 2, sizeof *begin);
    if (!filled || !begin) return false;
    for (uint32_t c = 0; c < s->count; c++) filled[p->rank[s->first + c]]++;
    for (int r = 0; r <= most; r++) begin[r + 1] = begin[r] + (filled[r] + ABREAST - 1) / ABREAST;
    s->ranks = begin[most + 1];
    memset(filled, 0, ((size_t)most + 2) * sizeof *filled);
    for (uint32_t c = 0; c < s->count; c++) {
        int *rank = &p->rank[s->first + c], at = filled[*rank]++;
        *rank = begin[*rank] + at / ABREAST;
    }
    return true;
}

/* Where the value leaves a box, from its left border. */
static int leaves_at(const placing *p, uint32_t box, uint32_t net) {
    const fb_picture_box *row = &p->picture->boxes[box];
    uint32_t g = row->is_open ? fb_map_get(&p->ends, segment_key(box, net, 0)) : 0;
    return g ? p->segments[g].end : row->width / 2;
}

/* Where it enters one that is open. */
static int enters_at(const placing *p, uint32_t box, uint32_t net) {
    const fb_picture_box *row = &p->picture->boxes[box];
    uint32_t g = row->is_open ? fb_map_get(&p->ends, segment_key(box, net, 1)) : 0;
    return g ? p->segments[g].start : row->width / 2;
}

typedef struct neighbour {
    uint32_t box;
    double wish, weight; /* for its left border, when its neighbours are thought away */
    double offset;       /* from the first one's, when all are side by side */
} neighbour;

/* As near to where each wants to be as neighbours allow: the pool of those that touch moves as one. */
static void settle(placing *p, neighbour *row, uint32_t count) {
    typedef struct pool {
        double sum, weight;
        uint32_t first;
    } pool;
    pool pools[ABREAST];
    uint32_t pool_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        pool now = {row[i].weight * (row[i].wish - row[i].offset), row[i].weight, i};
        while (pool_count && pools[pool_count - 1].sum / pools[pool_count - 1].weight >= now.sum / now.weight) {
            pool_count--;
            now = (pool){pools[pool_count].sum + now.sum, pools[pool_count].weight + now.weight, pools[pool_count].first};
        }
        pools[pool_count++] = now;
    }
    for (uint32_t k = 0; k < pool_count; k++) {
        uint32_t end = k + 1 < pool_count ? pools[k + 1].first : count;
        double at = pools[k].sum / pools[k].weight;
        for (uint32_t i = pools[k].first; i < end; i++) p->picture->boxes[row[i].box].x = (int)lround(at + row[i].offset);
    }
}

/* Under what they read. */
static bool place_ranks(sheet *s) {
    placing *p = s->p;
    fb_arena *arena = &p->picture->arena;
    fb_picture_box *boxes = p->picture->boxes;
    neighbour *rows = fb_picture_take(arena, (size_t)s->ranks * ABREAST + 1, sizeof *rows);
    uint32_t *filled = fb_picture_take(arena, (size_t)s->ranks + 1, sizeof *filled);
    double *wish = fb_picture_take(arena, s->count + 1, sizeof *wish),
           *weight = fb_picture_take(arena, s->count + 1, sizeof *weight);
    uint32_t *out = fb_picture_take(arena, s->count + 2, sizeof *out),
             *order = fb_picture_take(arena, s->segment_count, sizeof *order);
    uint32_t *next = fb_picture_take(arena, s->count + 1, sizeof *next);
    if (!rows || !filled || !wish || !weight || !out || !order || !next) return false;
    for (uint32_t i = 0; i < s->segment_count; i++)
        if (leads_on(segment_at(s, i))) out[segment_at(s, i)->from - s->first + 1]++;
    for (uint32_t i = 0; i < s->count; i++) out[i + 1] += out[i];
    memcpy(next, out, s->count * sizeof *next);
    for (uint32_t i = 0; i < s->segment_count; i++)
        if (leads_on(segment_at(s, i))) order[next[segment_at(s, i)->from - s->first]++] = i;
    for (uint32_t c = 0; c < s->count; c++) {
        int rank = p->rank[s->first + c];
        rows[(uint32_t)rank * ABREAST + filled[rank]++].box = s->first + c;
    }
    for (int rank = 0; rank < s->ranks; rank++) {
        neighbour *row = &rows[(uint32_t)rank * ABREAST];
        double offset = 0;
        for (uint32_t i = 0; i < filled[rank]; i++) {
            uint32_t c = row[i].box - s->first;
            row[i].offset = offset;
            offset += boxes[row[i].box].width + BESIDE;
            row[i].wish = weight[c] > 0 ? wish[c] / weight[c] : -boxes[row[i].box].width / 2.0;
            row[i].weight = weight[c] > 0 ? 1 : 0.05;
        }
        settle(p, row, filled[rank]);
        for (uint32_t i = 0; i < filled[rank]; i++) {
            uint32_t b = row[i].box, c = b - s->first;
            for (uint32_t k = out[c]; k < out[c + 1]; k++) {
                const segment *g = segment_at(s, order[k]);
                /* A near box counts more than one far up, and a tensor more than a number. */
                const fb_node value = boxes[b].value;
                bool is_number =
                    value.id && !fb_node_at(boxes[b].value_is_old ? p->picture->base : p->picture->graph, value)->shape.id;
                double says = (p->rank[g->to] == rank + 1 ? 1 : 0.3) * (is_number ? 0.05 : 1);
                wish[g->to - s->first] += says * (boxes[b].x + leaves_at(p, b, g->net) - enters_at(p, g->to, g->net));
                weight[g->to - s->first] += says;
            }
        }
    }
    return true;
}

/* ---- columns and lanes --------------------------------------------------------------------------------------------------- */

typedef struct column {
    int x, from, to; /* ranks between which it runs */
    uint32_t net;
} column;

typedef struct routing {
    sheet *s;
    column *columns;
    uint32_t column_count;
    uint32_t *of_rank, *rank_first; /* boxes in the order of layers */
} routing;

static bool is_free(const routing *r, int x, int from, int to, uint32_t net) {
    const placing *p = r->s->p;
    for (int rank = from + 1; rank < to; rank++) {
        for (uint32_t i = r->rank_first[rank]; i < r->rank_first[rank + 1]; i++) {
            const fb_picture_box *box = &p->picture->boxes[r->of_rank[i]];
            if (x > box->x - 7 && x < box->x + box->width + 7) return false;
        }
    }
    for (uint32_t i = 0; i < r->column_count; i++) {
        const column *other = &r->columns[i];
        if (other->net != net && abs(other->x - x) < 7 && other->from < to && from < other->to) return false;
    }
    return true;
}

static int from_rank(const sheet *s, const segment *g) {
    return g->from ? s->p->rank[g->from] : -1;
}
static int to_rank(const sheet *s, const segment *g) {
    return g->to ? s->p->rank[g->to] : s->ranks;
}

static int by_place(const void *a, const void *b) {
    const int *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* The ends of lines on a box, side by side in the order in which they come from above. */
static bool set_ends(sheet *s) {
    placing *p = s->p;
    fb_arena *arena = &p->picture->arena;
    uint32_t *in = fb_picture_take(arena, s->count + 2, sizeof *in), *next = fb_picture_take(arena, s->count + 1, sizeof *next);
    int(*order)[2] = fb_picture_take(arena, s->segment_count, sizeof *order);
    if (!in || !next || !order) return false;
    for (uint32_t i = 0; i < s->segment_count; i++) {
        segment *g = segment_at(s, i);
        g->start = g->from ? p->picture->boxes[g->from].x + leaves_at(p, g->from, g->net) : 0;
        if (g->to) in[g->to - s->first + 1]++;
    }
    for (uint32_t c = 0; c < s->count; c++) in[c + 1] += in[c];
    memcpy(next, in, s->count * sizeof *next);
    for (uint32_t i = 0; i < s->segment_count; i++) {
        const segment *g = segment_at(s, i);
        if (!g->to) continue;
        int *at = order[next[g->to - s->first]++];
        at[0] = g->from ? g->start : p->picture->boxes[g->to].x + p->picture->boxes[g->to].width;
        at[1] = (int)i;
    }
    for (uint32_t c = 0; c < s->count; c++) {
        const fb_picture_box *box = &p->picture->boxes[s->first + c];
        uint32_t count = in[c + 1] - in[c];
        fb_sort(order[in[c]], count, sizeof *order, by_place);
        for (uint32_t k = 0; k < count; k++) {
            segment *g = segment_at(s, (uint32_t)order[in[c] + k][1]);
            int spread = box->width / (int)(count + 1);
            g->end = box->x + (box->is_open ? enters_at(p, g->to, g->net) : spread * (int)(k + 1));
            if (!box->is_open && count == 1 && abs(g->start - (box->x + box->width / 2)) < 4) g->end = g->start;
        }
    }
    return true;
}

/* Straight down where nothing is in the way; 0 lanes needed. False: it needs a lane. */
static bool find_column(routing *r, segment *g) {
    int from = from_rank(r->s, g), to = to_rank(r->s, g);
    static const int beside[] = {0, 9, -9, 18, -18, 27, -27};
    int wanted[2] = {g->end, g->start};
    if (!g->from) wanted[1] = g->end;
    if (!g->to) wanted[0] = g->start;
    for (int w = 0; w < 2; w++) {
        for (unsigned i = 0; i < sizeof beside / sizeof *beside; i++) {
            int x = wanted[w] + beside[i];
            if (!is_free(r, x, from, to, g->net)) continue;
            g->column = x;
            r->columns[r->column_count++] = (column){x, from, to, g->net};
            return true;
        }
    }
    return false;
}

typedef struct lane_user {
    uint32_t net;
    int from, to, lane;
} lane_user;

static int by_span(const void *a, const void *b) {
    const lane_user *x = a, *y = b;
    int spans[2] = {x->to - x->from, y->to - y->from};
    if (spans[0] != spans[1]) return spans[0] < spans[1] ? -1 : 1;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->net > y->net) - (x->net < y->net);
}

/* One lane for a net, in which no other one is beside it; short ones are nearest. */
static void share_lanes(lane_user *users, uint32_t count) {
    fb_sort(users, count, sizeof *users, by_span);
    for (uint32_t i = 0; i < count; i++) {
        for (bool is_taken = true; is_taken; users[i].lane += is_taken) {
            is_taken = false;
            for (uint32_t k = 0; k < i && !is_taken; k++)
                is_taken = users[k].lane == users[i].lane && users[k].from < users[i].to && users[i].from < users[k].to;
        }
    }
}

static lane_user *user_of(lane_user *users, uint32_t *count, uint32_t net, int from, int to) {
    for (uint32_t i = 0; i < *count; i++) {
        if (users[i].net != net) continue;
        if (from < users[i].from) users[i].from = from;
        if (to > users[i].to) users[i].to = to;
        return &users[i];
    }
    users[*count] = (lane_user){net, from, to, 0};
    return &users[(*count)++];
}

static int lane_of(const lane_user *users, uint32_t count, uint32_t net) {
    for (uint32_t i = 0; i < count; i++)
        if (users[i].net == net) return users[i].lane;
    return 0;
}

enum { STRAIGHT, COLUMN, RIGHT, LEFT };

static bool route(sheet *s) {
    placing *p = s->p;
    fb_arena *arena = &p->picture->arena;
    routing r = {.s = s};
    uint8_t *how = fb_picture_take(arena, s->segment_count, 1);
    lane_user *right = fb_picture_take(arena, s->segment_count, sizeof *right),
              *left = fb_picture_take(arena, s->segment_count, sizeof *left);
    uint32_t right_count = 0, left_count = 0;
    r.columns = fb_picture_take(arena, s->segment_count, sizeof *r.columns);
    r.of_rank = fb_picture_take(arena, s->count, sizeof *r.of_rank);
    r.rank_first = fb_picture_take(arena, (size_t)s->ranks + 2, sizeof *r.rank_first);
    uint32_t *next = fb_picture_take(arena, (size_t)s->ranks + 1, sizeof *next);
    if (!how || !right || !left || !r.columns || !r.of_rank || !r.rank_first || !next) return false;
    for (uint32_t c = 0; c < s->count; c++) r.rank_first[p->rank[s->first + c] + 1]++;
    for (int k = 0; k < s->ranks; k++) r.rank_first[k + 1] += r.rank_first[k];
    memcpy(next, r.rank_first, (size_t)s->ranks * sizeof *next);
    for (uint32_t c = 0; c < s->count; c++) r.of_rank[next[p->rank[s->first + c]]++] = s->first + c;
    int low = 0, high = 0;
    for (uint32_t c = 0; c < s->count; c++) {
        const fb_picture_box *box = &p->picture->boxes[s->first + c];
        if (!c || box->x < low) low = box->x;
        if (!c || box->x + box->width > high) high = box->x + box->width;
    }
    for (uint32_t i = 0; i < s->segment_count && fb_work_goes_on(p->work, 256); i++) {
        segment *g = segment_at(s, i);
        int from = from_rank(s, g), to = to_rank(s, g);
        if (!g->from && to == 0) g->start = g->end;
        if (!g->to && from == s->ranks - 1) g->end = g->start;
        how[i] = to <= from ? LEFT : to == from + 1 ? STRAIGHT : find_column(&r, g) ? COLUMN : RIGHT;
        if (how[i] == RIGHT) user_of(right, &right_count, g->net, from, to);
        if (how[i] == LEFT) user_of(left, &left_count, g->net, to - 1, from + 1);
        g->first_gap = from + 1, g->last_gap = to;
    }
    share_lanes(right, right_count);
    share_lanes(left, left_count);
    for (uint32_t i = 0; i < r.column_count; i++) {
        if (r.columns[i].x < low) low = r.columns[i].x;
        if (r.columns[i].x > high) high = r.columns[i].x;
    }
    for (uint32_t i = 0; i < s->segment_count; i++) {
        segment *g = segment_at(s, i);
        if (how[i] == STRAIGHT) g->column = g->end;
        if (how[i] == RIGHT) g->column = high + MARGIN / 2 + LANE * (1 + lane_of(right, right_count, g->net));
        if (how[i] == LEFT) g->column = low - MARGIN / 2 - LANE * (1 + lane_of(left, left_count, g->net));
    }
    return true;
}

/* A value enters once: where the first of its readers has it come down. */
static bool join_entries(sheet *s) {
    placing *p = s->p;
    for (uint32_t i = 0; i < s->segment_count; i++) {
        segment *g = segment_at(s, i);
        if (g->from && g->to) continue;
        uint64_t key = segment_key(s->box, g->net, g->from ? 0 : 1);
        uint32_t known = fb_map_get(&p->ends, key);
        if (!g->from) g->start = known ? p->segments[known].start : g->column;
        else g->end = g->column;
        if (!known && !fb_map_put(&p->ends, key, s->segments[i])) return false;
    }
    return true;
}

/* ---- tracks -------------------------------------------------------------------------------------------------------------- */

typedef struct sideways {
    int gap, from, to, track; /* x */
    uint32_t net;
} sideways;

static int by_gap(const void *a, const void *b) {
    const sideways *x = a, *y = b;
    if (x->gap != y->gap) return x->gap < y->gap ? -1 : 1;
    return (x->net > y->net) - (x->net < y->net);
}

static int by_start(const void *a, const void *b) {
    const sideways *x = a, *y = b;
    if (x->gap != y->gap) return x->gap < y->gap ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->net > y->net) - (x->net < y->net);
}

/* Joins the sideways lines of one value in one gap. */
static uint32_t unite(sideways *all, uint32_t count) {
    uint32_t kept = 0;
    fb_sort(all, count, sizeof *all, by_gap);
    for (uint32_t i = 0; i < count; i++) {
        sideways *last = kept ? &all[kept - 1] : NULL;
        if (last && last->gap == all[i].gap && last->net == all[i].net) {
            if (all[i].from < last->from) last->from = all[i].from;
            if (all[i].to > last->to) last->to = all[i].to;
        } else {
            all[kept++] = all[i];
        }
    }
    return kept;
}

static void add_sideways(sideways *all, uint32_t *count, int gap, int a, int b, uint32_t net) {
    if (a != b) all[(*count)++] = (sideways){gap, a < b ? a : b, a < b ? b : a, 0, net};
}

static const sideways *find_sideways(const sideways *all, uint32_t count, int gap, uint32_t net) {
    sideways key = {.gap = gap, .net = net};
    return bsearch(&key, all, count, sizeof *all, by_gap);
}

static bool share_tracks(sheet *s) {
    fb_arena *arena = &s->p->picture->arena;
    sideways *all = fb_picture_take(arena, 2 * (size_t)s->segment_count, sizeof *all);
    int *ends = fb_picture_take(arena, 2 * (size_t)s->segment_count + 1, sizeof *ends);
    uint32_t count = 0;
    if (!all || !ends) return false;
    for (uint32_t i = 0; i < s->segment_count; i++) {
        const segment *g = segment_at(s, i);
        add_sideways(all, &count, g->first_gap, g->start, g->first_gap == g->last_gap ? g->end : g->column, g->net);
        if (g->first_gap != g->last_gap) add_sideways(all, &count, g->last_gap, g->column, g->end, g->net);
    }
    count = unite(all, count);
    fb_sort(all, count, sizeof *all, by_start);
    for (uint32_t i = 0; i < count; i++) {
        int *tracks = &s->tracks[all[i].gap], track = 0;
        while (track < *tracks && ends[track] + 6 > all[i].from) track++;
        if (track == *tracks) ++*tracks;
        ends[track] = all[i].to;
        all[i].track = track;
        if (!fb_work_goes_on(s->p->work, track + 1)) return false;
    }
    fb_sort(all, count, sizeof *all, by_gap);
    for (uint32_t i = 0; i < s->segment_count; i++) {
        segment *g = segment_at(s, i);
        const sideways *first = find_sideways(all, count, g->first_gap, g->net);
        const sideways *last = find_sideways(all, count, g->last_gap, g->net);
        g->first_track = first ? first->track : 0;
        g->last_track = last ? last->track : 0;
    }
    return true;
}

/* ---- heights, and the box's own size ------------------------------------------------------------------------------------- */

enum { LABEL = 18 }; /* below a box, the shape of what leaves it */

static int track_top(const sheet *s, int gap, int track) {
    return s->gap_top[gap] + (gap ? LABEL : 8) + track * TRACK;
}

static void stack(sheet *s) {
    placing *p = s->p;
    fb_picture_box *boxes = p->picture->boxes, *box = &boxes[s->box];
    for (uint32_t c = 0; c < s->count; c++) {
        int *height = &s->height[p->rank[s->first + c]];
        if (boxes[s->first + c].height > *height) *height = boxes[s->first + c].height;
    }
    int y = s->box ? HEADER : 0;
    for (int gap = 0; gap <= s->ranks; gap++) {
        s->gap_top[gap] = y;
        int height = (gap ? LABEL : 8) + s->tracks[gap] * TRACK + (gap < s->ranks ? 12 : 4);
        y += gap && gap < s->ranks && height < GAP ? GAP : height;
        if (gap < s->ranks) {
            s->top[gap] = y;
            y += s->height[gap];
        }
    }
    box->height = y;
    for (uint32_t c = 0; c < s->count; c++) boxes[s->first + c].y = s->top[p->rank[s->first + c]];
    for (uint32_t i = 0; i < s->segment_count; i++) {
        segment *g = segment_at(s, i);
        g->first_track = track_top(s, g->first_gap, g->first_track);
        g->last_track = track_top(s, g->last_gap, g->last_track);
    }
}

static void widen(int *low, int *high, int from, int to) {
    if (from < *low) *low = from;
    if (to > *high) *high = to;
}

/* All x from the box's left border. */
static void fit_width(sheet *s) {
    placing *p = s->p;
    fb_picture_box *boxes = p->picture->boxes, *box = &boxes[s->box];
    int low = 0, high = 0;
    if (s->count) low = boxes[s->first].x, high = low;
    for (uint32_t c = 0; c < s->count; c++)
        widen(&low, &high, boxes[s->first + c].x, boxes[s->first + c].x + boxes[s->first + c].width);
    for (uint32_t i = 0; i < s->segment_count; i++) {
        const segment *g = segment_at(s, i);
        widen(&low, &high, g->column, g->column);
        widen(&low, &high, g->start, g->start);
        widen(&low, &high, g->end, g->end);
    }
    int title = text_width(box->label) + 2 * MARGIN + 120,
        spare = s->box && high - low + 2 * MARGIN < title ? title - (high - low + 2 * MARGIN) : 0;
    int shift = MARGIN + spare / 2 - low;
    box->width = high - low + 2 * MARGIN + spare;
    for (uint32_t c = 0; c < s->count; c++) boxes[s->first + c].x += shift;
    for (uint32_t i = 0; i < s->segment_count; i++) {
        segment *g = segment_at(s, i);
        g->start += shift, g->column += shift, g->end += shift;
    }
}

static bool place_box(placing *p, uint32_t b) {
    fb_picture_box *box = &p->picture->boxes[b];
    if (!box->is_open) {
        size_closed(box);
        return true;
    }
    fb_arena *arena = &p->picture->arena;
    sheet s = {.p = p,
               .box = b,
               .first = box->first_child,
               .count = box->child_count,
               .segments = p->by_box + p->first_of[b],
               .segment_count = p->first_of[b + 1] - p->first_of[b]};
    if (!find_ranks(&s) || !wrap_ranks(&s)) return false;
    s.height = fb_picture_take(arena, (size_t)s.ranks + 1, sizeof *s.height);
    s.top = fb_picture_take(arena, (size_t)s.ranks + 1, sizeof *s.top);
    s.tracks = fb_picture_take(arena, (size_t)s.ranks + 1, sizeof *s.tracks);
    s.gap_top = fb_picture_take(arena, (size_t)s.ranks + 1, sizeof *s.gap_top);
    if (!s.height || !s.top || !s.tracks || !s.gap_top) return false;
    if (!place_ranks(&s) || !set_ends(&s) || !route(&s) || !join_entries(&s) || !share_tracks(&s)) return false;
    stack(&s);
    fit_width(&s);
    return fb_work_goes_on(p->work, s.count);
}

/* ---- the position of everything on the sheet ----------------------------------------------------------------------------- */

static void put(int *points, uint32_t *count, int x, int y) {
    uint32_t n = *count;
    if (n >= 2 && points[n - 2] == x && points[n - 1] == y) return;
    /* A point on a straight line says nothing. */
    bool is_between =
        n >= 4 && ((points[n - 4] == x && points[n - 2] == x && (points[n - 3] <= points[n - 1]) == (points[n - 1] <= y)) ||
                   (points[n - 3] == y && points[n - 1] == y && (points[n - 4] <= points[n - 2]) == (points[n - 2] <= x)));
    if (is_between) n -= 2;
    points[n++] = x, points[n++] = y;
    *count = n;
}

static bool draw_line(placing *p, fb_picture_line *line) {
    const fb_picture_box *boxes = p->picture->boxes;
    int *points = fb_picture_take(&p->picture->arena, 12 * (size_t)line->segment_count, sizeof *points);
    uint32_t count = 0;
    if (!points) return false;
    for (uint32_t i = 0; i < line->segment_count; i++) {
        const segment *g = &p->segments[line->segments[i]];
        const fb_picture_box *around = &boxes[g->box];
        int x = around->x, y = around->y;
        int top = g->from ? boxes[g->from].y + boxes[g->from].height : y;
        int bottom = g->to ? boxes[g->to].y : y + around->height;
        put(points, &count, x + g->start, top);
        if (g->first_gap == g->last_gap) {
            put(points, &count, x + g->start, y + g->first_track);
            put(points, &count, x + g->end, y + g->first_track);
        } else {
            put(points, &count, x + g->start, y + g->first_track);
            put(points, &count, x + g->column, y + g->first_track);
            put(points, &count, x + g->column, y + g->last_track);
            put(points, &count, x + g->end, y + g->last_track);
        }
        put(points, &count, x + g->end, bottom);
    }
    line->points = points;
    line->point_count = count / 2;
    return true;
}

static bool place(placing *p) {
    fb_picture *picture = p->picture;
    p->rank = fb_picture_take(&picture->arena, picture->box_count, sizeof *p->rank);
    if (!p->rank || !split_lines(p)) return false;
    for (uint32_t b = picture->box_count; b-- > 0;) /* what is in a box comes after it */
        if (!place_box(p, b)) return false;
    for (uint32_t b = 1; b < picture->box_count; b++) {
        const fb_picture_box *around = &picture->boxes[picture->boxes[b].parent];
        picture->boxes[b].x += around->x, picture->boxes[b].y += around->y;
    }
    for (uint32_t i = 0; i < picture->line_count; i++)
        if (!draw_line(p, &picture->lines[i])) return false;
    return true;
}

bool fb_picture_place(fb_picture *picture, fb_work *work) {
    placing p = {.picture = picture, .work = work};
    bool ok = place(&p);
    free(p.segments);
    fb_map_free(&p.ends);
    return ok;
}
