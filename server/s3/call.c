/* Where the bucket is, the credentials for it, and one request: signed, sent, and sent again when that may help. */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "server/libraries/curl.h"
#include "server/s3/internal.h"

static const char *given(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- the bucket --------------------------------------------------------------------------------------------------------- */

static bool has_only(const char *text, size_t length, const char *marks) {
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr(marks, text[i])) return false;
    return true;
}

/* "s3://bucket" or "s3://bucket/a/prefix". */
static fb_status read_url(const char *url, fb_s3_place *out, fb_error *error) {
    const char *bucket = strncmp(url, "s3://", 5) == 0 ? url + 5 : "";
    size_t length = strcspn(bucket, "/");
    const char *prefix = bucket[length] ? bucket + length + 1 : "";
    size_t rest = strlen(prefix);
    while (rest && prefix[rest - 1] == '/') rest--;
    bool is_right = length >= 3 && length <= 63 && has_only(bucket, length, ".-_") && rest <= 512 &&
                    has_only(prefix, rest, "/!-_.*'()=") && *prefix != '/' && !strstr(prefix, "//") && !strstr(prefix, "..");
    if (!is_right) return fb_fail(error, FB_INVALID, "bad-blobs", NULL, "%s is not s3://BUCKET or s3://BUCKET/PREFIX", url);
    out->bucket = strndup(bucket, length);
    out->prefix = malloc(rest + 2);
    if (out->prefix) snprintf(out->prefix, rest + 2, "%.*s%s", (int)rest, prefix, rest ? "/" : "");
    return out->bucket && out->prefix ? FB_OK : fb_fail_memory(error);
}

static fb_status read_endpoint(const char *text, char **out, fb_error *error) {
    size_t scheme = strncmp(text, "https://", 8) == 0 ? 8 : strncmp(text, "http://", 7) == 0 ? 7 : 0;
    size_t length = strlen(text);
    while (length > scheme && text[length - 1] == '/') length--;
    if (!scheme || length == scheme || !has_only(text + scheme, length - scheme, "-.:[]_"))
        return fb_fail(error, FB_INVALID, "bad-blobs", NULL, "%s is not an endpoint like https://s3.example.org:9000", text);
    *out = strndup(text, length);
    return *out ? FB_OK : fb_fail_memory(error);
}

static void s3_place_free(fb_s3_place *place) {
    free(place->endpoint);
    free(place->public_endpoint);
    free(place->bucket);
    free(place->prefix);
    free(place->region);
    *place = (fb_s3_place){0};
}

static fb_status s3_place_read(const fb_s3_config *config, fb_s3_place *out, fb_error *error) {
    const char *region = config->region ? config->region : given("AWS_REGION");
    if (!region) region = given("AWS_DEFAULT_REGION");
    if (!region) region = "us-east-1";
    if (!has_only(region, strlen(region), "-_"))
        return fb_fail(error, FB_INVALID, "bad-blobs", NULL, "%s is not a region like us-east-1", region);
    char amazon[160];
    snprintf(amazon, sizeof amazon, "https://s3.%.100s.amazonaws.com", region);
    const char *endpoint = config->endpoint ? config->endpoint : amazon;
    *out = (fb_s3_place){.region = strdup(region)};
    fb_status status = out->region ? read_url(config->url, out, error) : fb_fail_memory(error);
    if (!status) status = read_endpoint(endpoint, &out->endpoint, error);
    if (!status)
        status = read_endpoint(config->public_endpoint ? config->public_endpoint : endpoint, &out->public_endpoint, error);
    if (status) s3_place_free(out);
    return status;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), rest = strlen(end);
    return length >= rest && strcmp(text + length - rest, end) == 0;
}

/* "host:port" of an endpoint as the header Host has it. */
static void s3_put_host(const char *endpoint, fb_buffer *out) {
    bool is_tls = strncmp(endpoint, "https://", 8) == 0;
    const char *host = endpoint + (is_tls ? 8 : 7), *usual = is_tls ? ":443" : ":80";
    fb_buffer_append(out, host, strlen(host) - (ends_with(host, usual) ? strlen(usual) : 0));
}

/* ---- credentials -------------------------------------------------------------------------------------------------------- */

static fb_status fail_credentials(fb_error *error, const char *why) {
    return fb_fail(error, FB_IO, "blobs-refused", NULL,
                   "no credentials for the blobs' bucket: %s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                   "AWS_SHARED_CREDENTIALS_FILE",
                   why);
}

static bool copy(char *to, size_t space, const char *text) {
    return (size_t)snprintf(to, space, "%s", text) < space;
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) length--;
    text[length] = '\0';
    return text;
}

/* One line of the profile: "name = value". False when the value is too long. */
static bool take_line(char *line, fb_s3_credentials *out) {
    char *equals = strchr(line, '=');
    if (!equals) return true;
    *equals = '\0';
    const char *name = trim(line), *value = trim(equals + 1);
    if (strcmp(name, "aws_access_key_id") == 0) return copy(out->key, sizeof out->key, value);
    if (strcmp(name, "aws_secret_access_key") == 0) return copy(out->secret, sizeof out->secret, value);
    if (strcmp(name, "aws_session_token") == 0) return copy(out->token, sizeof out->token, value);
    return true;
}

static fb_status read_file(const char *path, fb_s3_credentials *out, fb_error *error) {
    const char *profile = given("AWS_PROFILE") ? given("AWS_PROFILE") : "default";
    char line[sizeof out->token + 64], wanted[200];
    FILE *file = fopen(path, "re");
    if (!file) return fail_credentials(error, "the file AWS_SHARED_CREDENTIALS_FILE cannot be read");
    bool is_ours = false, fits = true;
    snprintf(wanted, sizeof wanted, "[%s]", profile);
    while (fits && fgets(line, sizeof line, file)) {
        char *text = trim(line);
        if (*text == '[') is_ours = strcmp(text, wanted) == 0;
        else if (is_ours && *text != '#') fits = take_line(text, out);
    }
    fclose(file);
    explicit_bzero(line, sizeof line);
    if (!fits) return fail_credentials(error, "a value in the file AWS_SHARED_CREDENTIALS_FILE is too long");
    if (*out->key && *out->secret) return FB_OK;
    return fail_credentials(error, "the file AWS_SHARED_CREDENTIALS_FILE lacks the profile, or its key and secret");
}

/* FB_IO "blobs-refused" if none are set. */
static fb_status s3_credentials_read(fb_s3_credentials *out, fb_error *error) {
    const char *key = given("AWS_ACCESS_KEY_ID"), *secret = given("AWS_SECRET_ACCESS_KEY");
    const char *token = given("AWS_SESSION_TOKEN"), *path = given("AWS_SHARED_CREDENTIALS_FILE");
    *out = (fb_s3_credentials){0};
    if (!key && !secret) return path ? read_file(path, out, error) : fail_credentials(error, "none are given");
    if (!key || !secret) return fail_credentials(error, "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is missing");
    bool fits = copy(out->key, sizeof out->key, key) && copy(out->secret, sizeof out->secret, secret) &&
                copy(out->token, sizeof out->token, token ? token : "");
    return fits ? FB_OK : fail_credentials(error, "one is too long");
}

/* ---- limits -------------------------------------------------------------------------------------------------------------- */

#define ATTEMPTS 6
#define LONGEST 60 /* seconds after which attempts end */
#define FIRST_WAIT_MS 100U
#define LONGEST_WAIT_MS 3000U
#define CONNECT_MS 5000L
#define PROBE_MS 3000L
#define SLOWEST 1024L /* bytes a second, */
#define PATIENCE 30L  /* for this many seconds; then the request is broken off */
#define LONG_PATIENCE 300L
#define BUFFER (256L << 10)
#define TEXT_MAX ((size_t)8 << 20)
#define IDLE_MAX 16
#define HEADERS_MAX 8

struct fb_s3 {
    fb_s3_place place;
    pthread_mutex_t mutex; /* for what follows */
    CURL *idle[IDLE_MAX];  /* each with its connection */
    size_t idle_count;
    unsigned seed;
};

const fb_s3_place *fb_s3_place_of(const fb_s3 *s3) {
    return &s3->place;
}

fb_status fb_s3_new(const fb_s3_config *config, fb_s3 **out, fb_error *error) {
    fb_status status = fb_curl_load(error);
    fb_s3 *s3 = status ? NULL : calloc(1, sizeof *s3);
    if (!s3) return status ? status : fb_fail_memory(error);
    pthread_mutex_init(&s3->mutex, NULL);
    s3->seed = (unsigned)time(NULL) ^ (unsigned)getpid();
    status = s3_place_read(config, &s3->place, error);
    if (status) fb_s3_free(s3);
    else *out = s3;
    return status;
}

fb_status fb_s3_has_credentials(fb_error *error) {
    fb_s3_credentials credentials;
    fb_status status = s3_credentials_read(&credentials, error);
    explicit_bzero(&credentials, sizeof credentials);
    return status;
}

void fb_s3_free(fb_s3 *s3) {
    if (!s3) return;
    while (s3->idle_count) fb_curl.easy_cleanup(s3->idle[--s3->idle_count]);
    pthread_mutex_destroy(&s3->mutex);
    s3_place_free(&s3->place);
    free(s3);
}

static CURL *take_handle(fb_s3 *s3) {
    pthread_mutex_lock(&s3->mutex);
    CURL *curl = s3->idle_count ? s3->idle[--s3->idle_count] : NULL;
    pthread_mutex_unlock(&s3->mutex);
    return curl ? curl : fb_curl.easy_init();
}

static void give_handle_back(fb_s3 *s3, CURL *curl) {
    fb_curl.easy_reset(curl); /* keeps the connection */
    pthread_mutex_lock(&s3->mutex);
    bool has_room = s3->idle_count < IDLE_MAX;
    if (has_room) s3->idle[s3->idle_count++] = curl;
    pthread_mutex_unlock(&s3->mutex);
    if (!has_room) fb_curl.easy_cleanup(curl);
}

/* ---- what comes and goes ------------------------------------------------------------------------------------------------ */

typedef struct attempt {
    fb_s3_call *call;
    CURL *curl;
    size_t sent;
} attempt;

static bool is_whole_range(fb_s3_call *call, CURL *curl) {
    unsigned long long start = 0;
    fb_curl.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &call->status);
    if (*call->range) return sscanf(call->range, "bytes %llu-", &start) == 1 && start == call->offset;
    return call->status == 200 && call->offset == 0; /* the whole object, of which this is the beginning */
}

static bool put_bytes(fb_s3_call *call, const char *bytes, size_t size) {
    if (size > call->wanted - call->received) return false;
    if (call->to) memcpy(call->to + call->received, bytes, size);
    for (size_t done = 0; !call->to && done < size;) {
        off_t place = (off_t)(call->offset + call->received + done);
        ssize_t wrote = pwrite(call->file, bytes + done, size - done, place);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            call->reason = wrote < 0 ? errno : ENOSPC;
            return false;
        }
        done += (size_t)wrote;
    }
    call->received += size;
    return true;
}

static size_t take(char *bytes, size_t unit, size_t count, void *context) {
    attempt *now = context;
    fb_s3_call *call = now->call;
    size_t size = unit * count;
    long status = 0;
    fb_curl.easy_getinfo(now->curl, CURLINFO_RESPONSE_CODE, &status);
    bool is_range = call->wanted && (status == 200 || status == 206);
    if (is_range) return is_whole_range(call, now->curl) && put_bytes(call, bytes, size) ? size : 0;
    if (size > TEXT_MAX - call->text.size) return 0;
    fb_buffer_append(&call->text, bytes, size);
    return call->text.failed ? 0 : size;
}

static size_t give(char *to, size_t unit, size_t count, void *context) {
    attempt *now = context;
    size_t left = now->call->size - now->sent, some = unit * count < left ? unit * count : left;
    memcpy(to, (const char *)now->call->body + now->sent, some);
    now->sent += some;
    return some;
}

/* libcurl begins anew when a connection that it had kept turns out to be closed. */
static int rewind_body(void *context, curl_off_t offset, int origin) {
    attempt *now = context;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > now->call->size) return CURL_SEEKFUNC_CANTSEEK;
    now->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void keep_value(const char *line, size_t size, const char *name, char *out, size_t space) {
    size_t length = strlen(name);
    if (size <= length || strncasecmp(line, name, length) != 0) return;
    line += length, size -= length;
    while (size && (*line == ' ' || *line == '\t')) line++, size--;
    while (size && (line[size - 1] == '\r' || line[size - 1] == '\n' || line[size - 1] == ' ')) size--;
    snprintf(out, space, "%.*s", (int)size, line);
}

static size_t keep_header(char *line, size_t unit, size_t count, void *context) {
    fb_s3_call *call = ((attempt *)context)->call;
    size_t size = unit * count;
    keep_value(line, size, "ETag:", call->etag, sizeof call->etag);
    keep_value(line, size, "Content-Range:", call->range, sizeof call->range);
    return size;
}

/* ---- one attempt -------------------------------------------------------------------------------------------------------- */

static void put_path(const fb_s3_place *place, const char *key, fb_buffer *out) {
    fb_buffer_char(out, '/');
    fb_s3_encode(out, place->bucket, false);
    if (!key) return;
    fb_buffer_char(out, '/');
    fb_s3_encode(out, place->prefix, true);
    fb_s3_encode(out, key, true);
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value, bool *is_short) {
    fb_buffer line = {0};
    fb_buffer_printf(&line, "%s: %s", name, value);
    const char *text = fb_buffer_text(&line);
    struct curl_slist *longer = text ? fb_curl.slist_append(list, text) : NULL;
    fb_buffer_free(&line);
    *is_short |= !longer;
    return longer ? longer : list;
}

/* The headers, with the signature; NULL when memory is out. */
static struct curl_slist *make_headers(const fb_s3_place *place, const fb_s3_credentials *credentials, const fb_s3_call *call,
                                       const char *path) {
    char date[FB_S3_DATE_LENGTH + 1], hash[FB_S3_HASH_LENGTH + 1], range[64];
    fb_s3_signing signing = {.credentials = credentials,
                             .region = place->region,
                             .now = time(NULL),
                             .method = call->method,
                             .path = path,
                             .query = call->query ? call->query : ""};
    fb_buffer host = {0}, authorization = {0};
    fb_s3_header headers[HEADERS_MAX];
    size_t count = 0;
    bool is_short = !fb_s3_hash(call->body ? call->body : "", call->size, hash);
    s3_put_host(place->endpoint, &host);
    const char *host_text = fb_buffer_text(&host);
    if (is_short || !host_text) {
        fb_buffer_free(&host);
        return NULL;
    }
    fb_s3_date(signing.now, date);
    headers[count++] = (fb_s3_header){"host", host_text};
    headers[count++] = (fb_s3_header){"x-amz-content-sha256", hash};
    headers[count++] = (fb_s3_header){"x-amz-date", date};
    if (*credentials->token) headers[count++] = (fb_s3_header){"x-amz-security-token", credentials->token};
    fb_s3_sign(&signing, headers, count, hash, &authorization);
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < count; i++) list = add_header(list, headers[i].name, headers[i].value, &is_short);
    const char *text = fb_buffer_text(&authorization);
    list = add_header(list, "Authorization", text ? text : "", &is_short);
    list = add_header(list, "Content-Type", "application/octet-stream", &is_short);
    list = add_header(list, "Expect", "", &is_short); /* libcurl's own "100-continue" would cost a round trip */
    if (call->wanted) {
        snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)call->offset,
                 (unsigned long long)(call->offset + call->wanted - 1));
        list = add_header(list, "Range", range, &is_short);
    }
    if (is_short || !text) fb_curl.slist_free_all(list), list = NULL;
    fb_buffer_free(&host);
    fb_buffer_free(&authorization);
    return list;
}

static void set_method(CURL *curl, const fb_s3_call *call) {
    if (strcmp(call->method, "HEAD") == 0) fb_curl.easy_setopt(curl, CURLOPT_NOBODY, 1L);
    if (strcmp(call->method, "PUT") == 0) {
        fb_curl.easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        fb_curl.easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->size);
    } else if (strcmp(call->method, "POST") == 0) {
        fb_curl.easy_setopt(curl, CURLOPT_POST, 1L);
        fb_curl.easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->size);
    } else if (strcmp(call->method, "DELETE") == 0) {
        fb_curl.easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE");
    }
}

static bool set_options(CURL *curl, attempt *now, const char *url, struct curl_slist *headers, char *failure) {
    const char *certificates = getenv("AWS_CA_BUNDLE");
    fb_s3_call *call = now->call;
    fb_curl.easy_setopt(curl, CURLOPT_ERRORBUFFER, failure);
    fb_curl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    fb_curl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    fb_curl.easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    fb_curl.easy_setopt(curl, CURLOPT_USERAGENT, "foldback/" FB_VERSION);
    fb_curl.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, call->is_probe ? PROBE_MS : CONNECT_MS);
    if (call->is_probe) fb_curl.easy_setopt(curl, CURLOPT_TIMEOUT_MS, PROBE_MS);
    fb_curl.easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, SLOWEST);
    fb_curl.easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, call->is_long ? LONG_PATIENCE : PATIENCE);
    fb_curl.easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER);
    fb_curl.easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER);
    fb_curl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    fb_curl.easy_setopt(curl, CURLOPT_WRITEDATA, now);
    fb_curl.easy_setopt(curl, CURLOPT_READFUNCTION, give);
    fb_curl.easy_setopt(curl, CURLOPT_READDATA, now);
    fb_curl.easy_setopt(curl, CURLOPT_SEEKFUNCTION, rewind_body);
    fb_curl.easy_setopt(curl, CURLOPT_SEEKDATA, now);
    fb_curl.easy_setopt(curl, CURLOPT_HEADERFUNCTION, keep_header);
    fb_curl.easy_setopt(curl, CURLOPT_HEADERDATA, now);
    set_method(curl, call);
    return !fb_curl.easy_setopt(curl, CURLOPT_URL, url) && !fb_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, headers) &&
           (!certificates || !*certificates || !fb_curl.easy_setopt(curl, CURLOPT_CAINFO, certificates));
}

static CURLcode perform(CURL *curl, attempt *now, const char *url, struct curl_slist *headers, char *failure) {
    fb_s3_call *call = now->call;
    if (!set_options(curl, now, url, headers, failure)) return CURLE_OUT_OF_MEMORY;
    CURLcode result = fb_curl.easy_perform(curl);
    curl_off_t length = -1;
    fb_curl.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &call->status);
    fb_curl.easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    call->length = length < 0 ? UINT64_MAX : (uint64_t)length;
    return result;
}

static CURLcode send_once(fb_s3 *s3, const fb_s3_credentials *credentials, fb_s3_call *call, char *failure) {
    fb_buffer path = {0}, url = {0};
    call->status = 0, call->text.size = 0, call->received = 0, call->reason = 0;
    *call->etag = *call->range = *failure = '\0';
    put_path(&s3->place, call->key, &path);
    const char *path_text = fb_buffer_text(&path);
    struct curl_slist *headers = path_text ? make_headers(&s3->place, credentials, call, path_text) : NULL;
    fb_buffer_printf(&url, "%s%s%s%s", s3->place.endpoint, path_text ? path_text : "", call->query ? "?" : "",
                     call->query ? call->query : "");
    const char *url_text = fb_buffer_text(&url);
    CURL *curl = headers && url_text ? take_handle(s3) : NULL;
    attempt now = {.call = call, .curl = curl};
    CURLcode result = curl ? perform(curl, &now, url_text, headers, failure) : CURLE_OUT_OF_MEMORY;
    if (curl) give_handle_back(s3, curl);
    fb_curl.slist_free_all(headers);
    fb_buffer_free(&url);
    fb_buffer_free(&path);
    return result;
}

/* ---- what it means ------------------------------------------------------------------------------------------------------ */

static void find_code(fb_s3_call *call, char *out, size_t space) {
    const char *text = fb_buffer_text(&call->text), *at = text;
    char *code = text ? fb_s3_xml_text(&at, text + call->text.size, "Code") : NULL;
    snprintf(out, space, "%s", code ? code : "");
    for (char *c = out; *c; c++)
        if (*c < '!' || *c > '~') *c = '?';
    free(code);
}

static const char *advice(long status, const char *code) {
    if (strcmp(code, "RequestTimeTooSkewed") == 0) return "; set the clock of this machine";
    if (strcmp(code, "ExpiredToken") == 0 || strcmp(code, "TokenRefreshRequired") == 0) return "; renew the credentials";
    if (strcmp(code, "NoSuchBucket") == 0 || status == 404) return "; check --blobs";
    if (status == 301 || strcmp(code, "AuthorizationHeaderMalformed") == 0) return "; check --blobs-region";
    if (status == 403) return "; check the credentials and what they allow";
    return "";
}

static bool is_passing(long status, const char *code) {
    return (status >= 500 && status != 501) || status == 429 || status == 408 || strcmp(code, "SlowDown") == 0 ||
           strcmp(code, "RequestTimeout") == 0;
}

/* Judges one attempt. FB_BUSY: another one may help. */
static fb_status judge(fb_s3 *s3, fb_s3_call *call, CURLcode result, const char *failure, fb_error *error) {
    const char *endpoint = s3->place.endpoint;
    if (call->reason == ENOSPC || call->reason == EDQUOT)
        return fb_fail(error, FB_NO_SPACE, "disk-full", NULL, "the disk of the store is full");
    if (call->reason)
        return fb_fail(error, FB_IO, "store-failed", NULL, "the store cannot write what it fetches: %s",
                       strerror(call->reason));
    if (result == CURLE_OUT_OF_MEMORY || call->text.failed) return fb_fail_memory(error);
    if (result == CURLE_WRITE_ERROR && call->wanted && (call->status == 200 || call->status == 206))
        return fb_fail(error, FB_IO, "blobs-refused", NULL,
                       "the blobs' store at %s sent other bytes than the range that it was asked for", endpoint);
    if (result)
        return fb_fail(error, FB_BUSY, "blobs-unavailable", NULL, "the blobs' store at %s cannot be reached: %s", endpoint,
                       *failure ? failure : fb_curl.easy_strerror(result));
    char code[64];
    find_code(call, code, sizeof code);
    bool is_good = call->status >= 200 && call->status < 300;
    /* The end of an upload in parts is answered 200 before it is done: then the body says that it failed. */
    const char *text = fb_buffer_text(&call->text);
    if (!text) return fb_fail_memory(error);
    bool has_failed = is_good && strstr(text, "<Error>");
    if (is_good && !has_failed && call->received == call->wanted) return FB_OK;
    if (is_good && !has_failed)
        return fb_fail(error, FB_BUSY, "blobs-unavailable", NULL, "the blobs' store at %s broke off an object", endpoint);
    bool is_upload = strcmp(code, "NoSuchUpload") == 0; /* also what some answer for an empty list of them */
    bool is_read = call->key && strcmp(call->method, "PUT") != 0 && strcmp(call->method, "POST") != 0;
    if (call->status == 404 && (is_read || is_upload) && strcmp(code, "NoSuchBucket") != 0)
        return fb_fail(error, FB_NOT_FOUND, "unknown-object", NULL, "there is no %s in the blobs' store",
                       call->key ? call->key : "upload");
    if (has_failed || is_passing(call->status, code))
        return fb_fail(error, FB_BUSY, "blobs-unavailable", NULL, "the blobs' store at %s answered %ld %s", endpoint,
                       call->status, code);
    return fb_fail(error, FB_IO, "blobs-refused", NULL, "the blobs' store at %s answered %ld %s to %s%s", endpoint,
                   call->status, code, call->method, advice(call->status, code));
}

static void wait_before(fb_s3 *s3, unsigned attempts) {
    unsigned most = FIRST_WAIT_MS << attempts;
    if (most > LONGEST_WAIT_MS) most = LONGEST_WAIT_MS;
    pthread_mutex_lock(&s3->mutex);
    unsigned wait = most / 2 + (unsigned)rand_r(&s3->seed) % (most / 2);
    pthread_mutex_unlock(&s3->mutex);
    struct timespec pause = {.tv_sec = wait / 1000, .tv_nsec = (long)(wait % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

fb_status fb_s3_do(fb_s3 *s3, fb_s3_call *call, fb_error *error) {
    char failure[CURL_ERROR_SIZE];
    fb_error met = {0};
    time_t begun = time(NULL);
    for (unsigned i = 0; i < (call->is_probe ? 1 : ATTEMPTS) && (!i || time(NULL) - begun < LONGEST); i++) {
        fb_s3_credentials credentials;
        if (i) wait_before(s3, i - 1);
        met = (fb_error){0};
        if (!s3_credentials_read(&credentials, &met))
            judge(s3, call, send_once(s3, &credentials, call, failure), failure, &met);
        explicit_bzero(&credentials, sizeof credentials);
        if (met.status != FB_BUSY) break;
    }
    return met.status ? fb_fail(error, met.status, met.code, NULL, "%s", met.message) : FB_OK;
}

/* ---- a URL for others --------------------------------------------------------------------------------------------------- */

char *fb_s3_url(fb_s3 *s3, const char *key, unsigned seconds) {
    fb_s3_credentials credentials;
    fb_buffer host = {0}, path = {0}, out = {0};
    if (s3_credentials_read(&credentials, NULL)) return NULL;
    s3_put_host(s3->place.public_endpoint, &host);
    put_path(&s3->place, key, &path);
    const char *path_text = fb_buffer_text(&path), *host_text = fb_buffer_text(&host);
    if (path_text && host_text) {
        fb_s3_signing signing = {
            .credentials = &credentials, .region = s3->place.region, .now = time(NULL), .method = "GET", .path = path_text};
        fb_buffer_printf(&out, "%s%s?", s3->place.public_endpoint, path_text);
        fb_s3_presign(&signing, host_text, seconds, &out);
    }
    char *url = path_text && host_text ? fb_buffer_take(&out, NULL) : NULL;
    explicit_bzero(&credentials, sizeof credentials);
    fb_buffer_free(&out);
    fb_buffer_free(&host);
    fb_buffer_free(&path);
    return url;
}
