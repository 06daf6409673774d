#include "server/check/check.h"

#include <string.h>
#include <sys/stat.h>

#include "server/check/internal.h"
#include "server/store/check.h"

#define CACHE_BYTES ((size_t)256 << 20) /* runs one after the other tend to have their graphs in common */

static fb_status check_store(const fb_app *app, fb_check *check, fb_error *error) {
    fb_check_progress(check, "pages", 0, 1);
    fb_status status = fb_store_check_pages(app->store, fb_check_stored, check, error);
    if (!status) status = fb_store_check_references(app->store, fb_check_stored, check, error);
    if (!status) status = fb_store_check_answers(app->store, fb_check_stored, check, &check->answers, error);
    if (!status) status = fb_check_graphs(app, check, error);
    if (!status) status = fb_check_rules(app, check, error);
    if (!status) status = fb_check_runs(app, check, error);
    if (!status) status = fb_check_blobs(app, check, error);
    return status;
}

/* Opening a folder without a store would make one. */
static fb_status find_store(const char *folder, fb_error *error) {
    static const char *const signs[] = {"foldback.sqlite", "blobs"}; /* the database may be what is lost */
    bool is_there = false;
    struct stat about;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        fb_buffer path = {0};
        fb_buffer_printf(&path, "%s/%s", folder, signs[i]);
        const char *text = fb_buffer_text(&path);
        is_there = is_there || !text || stat(text, &about) == 0;
        fb_buffer_free(&path);
    }
    return is_there ? FB_OK : fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "there is no store in %s", folder);
}

fb_status fb_check_folder(const char *folder, fb_check *check, fb_error *error) {
    fb_error met = {0};
    fb_app app = {.cache = fb_cache_new(CACHE_BYTES)};
    fb_status status = app.cache ? find_store(folder, error) : fb_fail_memory(error);
    if (!status) status = fb_store_open(folder, &(fb_store_config){.may_only_read = true}, &app.store, &met);
    if (met.status && strcmp(met.code, "store-corrupt") == 0)
        status = fb_check_met(check, "database-damaged", "the database", &met, error);
    else if (met.status) fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    if (!status && app.store) status = check_store(&app, check, error);
    fb_store_close(app.store);
    fb_cache_free(app.cache);
    return status;
}
