/* libFuzzer: whatever body comes to whatever route, the service answers with success or a defined problem, and is there
 * afterwards. The input is a byte that chooses a route which takes a body, one for its query, and the body. All of the service
 * is in this process, over a data folder that is removed at the end; its routes' parameters name what is there. `make fuzz`
 * builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/map.h"
#include "server/cli/client.h"
#include "server/routes/routes.h"
#include "server/service/service.h"

#define SHAPED "\"meta\":{\"shape\":[2,4],\"dtype\":\"float32\"}"
static const char graph_text[] =
    "{\"format\":\"foldback.graph/1\",\"nodes\":[{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"," SHAPED "},"
    "{\"name\":\"a\",\"op\":\"call_module\",\"target\":\"a\",\"args\":[{\"$node\":\"x\"}]," SHAPED "},"
    "{\"name\":\"b\",\"op\":\"call_module\",\"target\":\"b\",\"args\":[{\"$node\":\"x\"}]," SHAPED "},"
    "{\"name\":\"c\",\"op\":\"call_function\",\"target\":\"operator.add\",\"args\":[{\"$node\":\"a\"},{\"$node\":\"b\"}]"
    "," SHAPED
    "},{\"name\":\"d\",\"op\":\"call_function\",\"target\":\"operator.truediv\",\"args\":[{\"$node\":\"c\"},8]," SHAPED "},"
    "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"d\"}]}],\"modules\":[{\"path\":\"\","
    "\"type\":\"M\"},{\"path\":\"a\",\"type\":\"torch.nn.Linear\",\"config\":{\"in_features\":4,\"out_features\":4,\"bias\":"
    "false},\"parameters\":{\"weight\":\"a.weight\",\"bias\":null}},{\"path\":\"b\",\"type\":\"torch.nn.Linear\",\"config\":{"
    "\"in_features\":4,\"out_features\":4,\"bias\":false},\"parameters\":{\"weight\":\"b.weight\",\"bias\":null}}],"
    "\"tensors\":[{\"name\":\"a.weight\",\"dtype\":\"float32\",\"shape\":[4,4]},{\"name\":\"b.weight\",\"dtype\":\"float32\","
    "\"shape\":[4,4]}]}";

/* ---- the service --------------------------------------------------------------------------------------------------------- */

static fb_service service;
static char folder[64];
static char graph_id[FB_ID_LENGTH + 1], run_id[64],
    upload_id[64]; /* the upload is a new one for each request that goes on with one */

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where) {
    (void)about, (void)type, (void)where;
    return remove(path);
}

static void stop(void) {
    fb_service_stop(&service, 1000);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int ask(const char *method, const char *target, const char *header, const void *body, size_t size, fb_buffer *said) {
    fb_answer answer = {0};
    fb_error error = {0};
    fb_call call = {.method = method, .header = header};
    fb_buffer_append(&call.body, body, size);
    fb_status status = fb_local_call(service.http, &call, target, &answer, &error);
    if (status) fprintf(stderr, "%s %s: %s\n", method, target, error.message);
    require(status == FB_OK);
    fb_buffer_free(&call.body);
    if (said) *said = answer.body;
    else fb_buffer_free(&answer.body);
    return answer.status;
}

static void make(const char *method, const char *target, const char *body, const char *member, char *out, size_t space) {
    fb_buffer said = {0};
    int status = ask(method, target, "If-None-Match: *", body, strlen(body), &said);
    if (status >= 300) fprintf(stderr, "%s %s: %d %s\n", method, target, status, fb_buffer_text(&said));
    require(status >= 200 && status < 300);
    json_t *answer = json_loads(fb_buffer_text(&said), 0, NULL);
    if (member) snprintf(out, space, "%s", json_string_value(json_object_get(answer, member)));
    json_decref(answer);
    fb_buffer_free(&said);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    snprintf(folder, sizeof folder, "%s/foldback-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    require(mkdtemp(folder) != NULL);
    fb_service_config config = fb_service_config_default();
    fb_error error = {0};
    config.data = folder;
    config.http.listen = NULL;
    config.http.access_log = NULL;
    config.http.io_threads = 1;
    config.http.worker_threads = 2;
    config.cache_bytes = (size_t)1 << 20;
    config.evaluation.memory = (size_t)16 << 20;
    config.evaluation.timeout_ms = 2000;
    config.limits = (fb_document_limits){.max_nodes = 2000};
    require(fb_service_start(&config, &service, &error) == FB_OK);
    atexit(stop);
    fb_buffer run = {0};
    make("POST", "/v1/graphs", graph_text, "id", graph_id, sizeof graph_id);
    fb_buffer_printf(&run, "{\"graph\":\"%s\",\"passes\":[\"MergeLinears\"]}", graph_id);
    make("POST", "/v1/optimize", fb_buffer_text(&run), "id", run_id, sizeof run_id);
    run.size = 0;
    fb_buffer_printf(&run, "{\"graph\":\"%s\"}", graph_id);
    make("PUT", "/v1/models/m/versions/1", fb_buffer_text(&run), NULL, NULL, 0);
    make("PUT", "/v1/models/m/aliases/live", "{\"version\":\"1\"}", NULL, NULL, 0);
    fb_buffer_free(&run);
    return 0;
}

/* ---- one request --------------------------------------------------------------------------------------------------------- */

/* What stands for a parameter of a pattern, "{id}": something that is there, where that can be. */
static void write_parameter(const char *name, size_t size, fb_buffer *out) {
    static const struct {
        const char *name, *value;
    } known[] = {{"id", graph_id}, {"run", run_id},       {"model", "m"},   {"version", "1"},    {"alias", "live"},
                 {"name", "mine"}, {"upload", upload_id}, {"job", "job_x"}, {"digest", graph_id}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != size || memcmp(known[i].name, name, size)) continue;
        fb_buffer_string(out, known[i].value);
        return;
    }
    fb_buffer_string(out, "x");
}

static void write_target(const fb_route *route, fb_buffer *out) {
    for (const char *p = route->pattern; *p; p++) {
        if (*p != '{') {
            fb_buffer_char(out, *p);
            continue;
        }
        size_t size = strcspn(++p, "}");
        write_parameter(p, size, out);
        p += size;
    }
}

/* One of the query parameters that the route takes, with a value that means something. */
static void write_query(const fb_route *route, uint8_t choice, fb_buffer *out) {
    static const char *const values[] = {
        "",      "1", "true",   "sha256:88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589", "MergeLinears",
        "graph", "0", "float64"}; /* the digest is that of abcd */
    const char *names = route->query ? route->query : "";
    unsigned skipped = choice >> 4;
    if (!(choice & 8) || !*names) return;
    while (skipped-- && strchr(names, ',')) names = strchr(names, ',') + 1;
    fb_buffer_printf(out, "?%.*s=%s", (int)strcspn(names, ","), names + strspn(names, " "), values[choice & 7]);
}

/* Of the routes that take a body the one that stands next to the number on a circle of 256 places: so that an input means what
 * it meant when a route is added. */
static const fb_route *route_at(uint8_t place) {
    static fb_route *routes;
    static size_t count;
    const fb_route *nearest = NULL;
    unsigned least = 256;
    if (!routes) routes = fb_routes_join(&count);
    require(routes);
    for (const fb_route *route = routes; route < routes + count; route++) {
        uint64_t hash = fb_hash_text(route->pattern, fb_hash_text(route->method, 0));
        unsigned distance = (uint8_t)(hash - place);
        if (route->body == FB_BODY_NONE || distance >= least) continue;
        least = distance;
        nearest = route;
    }
    return nearest;
}

static void check_problem(int status, fb_buffer *said) {
    json_t *problem = json_loads(fb_buffer_text(said), 0, NULL);
    require(json_integer_value(json_object_get(problem, "status")) == status);
    require(json_string_length(json_object_get(problem, "code")) && json_string_length(json_object_get(problem, "detail")));
    json_decref(problem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const fb_route *route = route_at(data[0]);
    fb_buffer target = {0}, said = {0};
    if (strstr(route->pattern, "{upload}")) make("POST", "/v1/blobs/uploads", "", "upload", upload_id, sizeof upload_id);
    write_target(route, &target);
    write_query(route, data[1], &target);
    const char *header = route->sink ? "Content-Range: bytes 0-3/4" : "If-Match: *";
    int status = ask(route->method, fb_buffer_text(&target), data[1] & 1 ? header : NULL, data + 2, size - 2, &said);
    if (status >= 300) check_problem(status, &said);
    if (status >= 500 && status != 503) fprintf(stderr, "%s %s: %d %s\n", route->method, target.data, status, said.data);
    require(status >= 200 && (status < 500 || status == 503));
    fb_buffer_free(&target);
    fb_buffer_free(&said);
    return 0;
}
