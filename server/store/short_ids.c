/* The ids that begin with given characters. */
#include <stdio.h>
#include <string.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/state.h"
#include "server/store/store.h"

static const char *const queries[] = {
    [FB_SHORT_GRAPH] = "SELECT id FROM graphs WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT ?2",
    [FB_SHORT_STRUCTURE] =
        "SELECT DISTINCT structure FROM graphs WHERE structure >= ?1 AND structure < ?1 || '~' ORDER BY structure LIMIT ?2",
    [FB_SHORT_RUN] = "SELECT id FROM runs WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT ?2",
    [FB_SHORT_JOB] = "SELECT id FROM jobs WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT ?2",
    [FB_SHORT_BLOB] = "SELECT digest FROM blobs WHERE digest >= ?1 AND digest < ?1 || '~' ORDER BY digest LIMIT ?2",
    [FB_SHORT_SIGNATURE] = "SELECT text FROM signatures WHERE text >= ?1 AND text < ?1 || '~' UNION "
                           "SELECT composition FROM runs WHERE composition >= ?1 AND composition < ?1 || '~' "
                           "ORDER BY 1 LIMIT ?2",
};

fb_status fb_store_find_short(fb_store *store, fb_short_kind kind, const char *prefix, fb_short_matches *out, fb_error *error) {
    fb_short_matches matches = {0};
    fb_query query = fb_read_begin(&store->readers, queries[kind], error);
    fb_bind_text(&query, prefix);
    fb_bind_int(&query, FB_SHORT_MATCHES);
    while (fb_query_row(&query) && matches.count < FB_SHORT_MATCHES)
        snprintf(matches.ids[matches.count++], sizeof *matches.ids, "%s", fb_column_text(&query, 0));
    fb_status status = fb_read_end(&store->readers, &query);
    if (!status) *out = matches;
    return status;
}
