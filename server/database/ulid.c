#include "server/database/ulid.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

bool fb_fill_random(void *bytes, size_t size) {
    ssize_t got;
    do got = getrandom(bytes, size, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)size; /* up to 256 bytes come whole */
}

static fb_status fail_random(fb_error *error) {
    return fb_fail(error, FB_IO, "no-randomness", NULL, "the system gives no random bytes");
}

/* Adds one to the random part; false when it was all ones. */
static bool increment(uint8_t random[10]) {
    for (size_t i = 10; i-- > 0;)
        if (++random[i] != 0) return true;
    return false;
}

static const char digits[] = FB_ULID_DIGITS;

/* 130 bits in 26 characters, of which the first two bits are zero. */
static void print(int64_t ms, const uint8_t random[10], char out[FB_ULID_LENGTH + 1]) {
    uint8_t bytes[16];
    for (size_t i = 0; i < 6; i++) bytes[i] = (uint8_t)((uint64_t)ms >> (40 - 8 * i));
    memcpy(bytes + 6, random, 10);
    for (int i = 0; i < FB_ULID_LENGTH; i++) {
        unsigned value = 0;
        for (int bit = 5 * i - 2; bit < 5 * i + 3; bit++)
            value = value << 1 | (bit < 0 ? 0U : (unsigned)(bytes[bit / 8] >> (7 - bit % 8)) & 1U);
        out[i] = digits[value];
    }
    out[FB_ULID_LENGTH] = '\0';
}

fb_status fb_ulid_next(fb_ulid_source *source, int64_t now_ms, char out[FB_ULID_LENGTH + 1], fb_error *error) {
    pthread_mutex_lock(&source->mutex);
    bool is_ready = true;
    if (now_ms <= source->last_ms) {
        if (!increment(source->random)) source->last_ms++; /* all zeros in the next millisecond */
    } else {
        is_ready = fb_fill_random(source->random, sizeof source->random);
        if (is_ready) source->last_ms = now_ms;
    }
    if (is_ready) print(source->last_ms, source->random, out);
    pthread_mutex_unlock(&source->mutex);
    return is_ready ? FB_OK : fail_random(error);
}

fb_status fb_ulid_part(fb_ulid_source *source, fb_error *error) {
    pthread_mutex_lock(&source->mutex);
    bool is_ready = fb_fill_random(source->random, sizeof source->random);
    source->last_ms++;
    pthread_mutex_unlock(&source->mutex);
    return is_ready ? FB_OK : fail_random(error);
}

void fb_ulid_resume(fb_ulid_source *source, const char *ulid) {
    uint8_t bytes[16] = {0};
    if (strspn(ulid, digits) != FB_ULID_LENGTH || ulid[FB_ULID_LENGTH]) return;
    for (int i = 0; i < FB_ULID_LENGTH; i++) {
        unsigned value = (unsigned)(strchr(digits, ulid[i]) - digits);
        for (int bit = 5 * i - 2; bit < 5 * i + 3; bit++)
            if (bit >= 0 && value >> (5 * i + 2 - bit) & 1U) bytes[bit / 8] |= (uint8_t)(1U << (7 - bit % 8));
    }
    pthread_mutex_lock(&source->mutex);
    source->last_ms = 0;
    for (size_t i = 0; i < 6; i++) source->last_ms = source->last_ms << 8 | bytes[i];
    memcpy(source->random, bytes + 6, sizeof source->random);
    pthread_mutex_unlock(&source->mutex);
}
