#include "core/base/timestamp.h"

#include <string.h>

/* `count` digits and the character after them, which must be one of `after` unless that is NULL. */
static bool read_number(const char **at, int count, const char *after, int *value) {
    *value = 0;
    for (int i = 0; i < count; i++, ++*at) {
        if (**at < '0' || **at > '9') return false;
        *value = *value * 10 + (**at - '0');
    }
    if (!after) return true;
    if (!**at || !strchr(after, **at)) return false;
    ++*at;
    return true;
}

static int days_of(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && is_leap);
}

static bool read_date(const char **at, int64_t *days) {
    int year, month, day;
    if (!read_number(at, 4, "-", &year) || !read_number(at, 2, "-", &month) || !read_number(at, 2, NULL, &day)) return false;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days_of(year, month)) return false;
    *days = day - 1;
    for (int y = 1970; y < year; y++) *days += days_of(y, 2) == 29 ? 366 : 365;
    for (int m = 1; m < month; m++) *days += days_of(year, m);
    return true;
}

/* ".5": what is beyond milliseconds is cut. */
static bool read_fraction(const char **at, int *milliseconds) {
    int unit = 100;
    *milliseconds = 0;
    if (**at != '.') return true;
    if (*++*at < '0' || **at > '9') return false;
    for (; **at >= '0' && **at <= '9'; ++*at, unit /= 10) *milliseconds += (**at - '0') * unit;
    return true;
}

/* "Z" or "+01:00", in minutes. */
static bool read_offset(const char **at, int *minutes) {
    int hour, minute, sign = **at == '-' ? -1 : 1;
    *minutes = 0;
    if (**at == 'Z' || **at == 'z') return ++*at, true;
    if (**at != '+' && **at != '-') return false;
    ++*at;
    if (!read_number(at, 2, ":", &hour) || !read_number(at, 2, NULL, &minute) || hour > 23 || minute > 59) return false;
    *minutes = sign * (hour * 60 + minute);
    return true;
}

bool fb_timestamp_read(const char *text, int64_t *milliseconds) {
    const char *at = text;
    int64_t days;
    int hour = 0, minute = 0, second = 0, fraction = 0, offset = 0;
    if (!read_date(&at, &days)) return false;
    if (*at) {
        if (!strchr("Tt ", *at++)) return false;
        if (!read_number(&at, 2, ":", &hour) || !read_number(&at, 2, ":", &minute) || !read_number(&at, 2, NULL, &second) ||
            !read_fraction(&at, &fraction) || !read_offset(&at, &offset) || *at)
            return false;
    }
    if (hour > 23 || minute > 59 || second > 60) return false;
    int64_t seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second;
    if (seconds < 0) return false;
    *milliseconds = seconds * 1000 + fraction;
    return true;
}
