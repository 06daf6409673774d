/* Signatures against the examples in Amazon's documentation of S3 (Authenticating Requests, Signature Version 4). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/s3/internal.h"
#include "tests/unit/run_tests.h"

#define HOST "examplebucket.s3.amazonaws.com"
#define NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define MIDNIGHT 1369353600 /* 2013-05-24T00:00:00Z */

static const fb_s3_credentials documented = {.key = "AKIAIOSFODNN7EXAMPLE",
                                             .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};

static fb_s3_signing signing_of(const char *method, const char *path, const char *query) {
    return (fb_s3_signing){
        .credentials = &documented, .region = "us-east-1", .now = MIDNIGHT, .method = method, .path = path, .query = query};
}

static void expect_signature(const fb_s3_signing *signing, const fb_s3_header *headers, size_t count, const char *payload,
                             const char *names, const char *signature) {
    fb_buffer out = {0}, expected = {0};
    fb_s3_sign(signing, headers, count, payload, &out);
    fb_buffer_printf(&expected,
                     "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=%s,"
                     "Signature=%s",
                     names, signature);
    ck_assert_str_eq(fb_buffer_text(&out), fb_buffer_text(&expected));
    fb_buffer_free(&out);
    fb_buffer_free(&expected);
}

START_TEST(range_of_an_object) {
    fb_s3_signing signing = signing_of("GET", "/test.txt", "");
    const fb_s3_header headers[] = {
        {"host", HOST}, {"range", "bytes=0-9"}, {"x-amz-content-sha256", NOTHING}, {"x-amz-date", "20130524T000000Z"}};
    expect_signature(&signing, headers, 4, NOTHING, "host;range;x-amz-content-sha256;x-amz-date",
                     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}
END_TEST

START_TEST(put_with_a_body) {
    static const char body[] = "Welcome to Amazon S3.";
    char hash[FB_S3_HASH_LENGTH + 1];
    fb_buffer path = {0};
    fb_s3_encode(&path, "/test$file.text", true);
    fb_s3_signing signing = signing_of("PUT", fb_buffer_text(&path), "");
    ck_assert(fb_s3_hash(body, strlen(body), hash));
    const fb_s3_header headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                    {"host", HOST},
                                    {"x-amz-content-sha256", hash},
                                    {"x-amz-date", "20130524T000000Z"},
                                    {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    expect_signature(&signing, headers, 5, hash, "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    fb_buffer_free(&path);
}
END_TEST

START_TEST(queries) {
    const fb_s3_header headers[] = {{"host", HOST}, {"x-amz-content-sha256", NOTHING}, {"x-amz-date", "20130524T000000Z"}};
    fb_s3_signing lifecycle = signing_of("GET", "/", "lifecycle="), list = signing_of("GET", "/", "max-keys=2&prefix=J");
    expect_signature(&lifecycle, headers, 3, NOTHING, "host;x-amz-content-sha256;x-amz-date",
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    expect_signature(&list, headers, 3, NOTHING, "host;x-amz-content-sha256;x-amz-date",
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}
END_TEST

START_TEST(presigned) {
    fb_s3_signing signing = signing_of("GET", "/test.txt", "");
    fb_buffer out = {0};
    fb_s3_presign(&signing, HOST, 86400, &out);
    ck_assert_str_eq(fb_buffer_text(&out),
                     "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
                     "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&"
                     "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    fb_buffer_free(&out);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("s3_sign");
    tcase_add_test(tests, range_of_an_object);
    tcase_add_test(tests, put_with_a_body);
    tcase_add_test(tests, queries);
    tcase_add_test(tests, presigned);
    return run_tests("s3_sign", tests);
}
