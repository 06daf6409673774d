/* Where the bucket is, and the credentials for it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

fb_status fb_s3_place_read(const fb_s3_config *config, fb_s3_place *out, fb_error *error) {
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
    if (status) fb_s3_place_free(out);
    return status;
}

void fb_s3_place_free(fb_s3_place *place) {
    free(place->endpoint);
    free(place->public_endpoint);
    free(place->bucket);
    free(place->prefix);
    free(place->region);
    *place = (fb_s3_place){0};
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), rest = strlen(end);
    return length >= rest && strcmp(text + length - rest, end) == 0;
}

void fb_s3_put_host(const char *endpoint, fb_buffer *out) {
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

fb_status fb_s3_credentials_read(fb_s3_credentials *out, fb_error *error) {
    const char *key = given("AWS_ACCESS_KEY_ID"), *secret = given("AWS_SECRET_ACCESS_KEY");
    const char *token = given("AWS_SESSION_TOKEN"), *path = given("AWS_SHARED_CREDENTIALS_FILE");
    *out = (fb_s3_credentials){0};
    if (!key && !secret) return path ? read_file(path, out, error) : fail_credentials(error, "none are given");
    if (!key || !secret) return fail_credentials(error, "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is missing");
    bool fits = copy(out->key, sizeof out->key, key) && copy(out->secret, sizeof out->secret, secret) &&
                copy(out->token, sizeof out->token, token ? token : "");
    return fits ? FB_OK : fail_credentials(error, "one is too long");
}
