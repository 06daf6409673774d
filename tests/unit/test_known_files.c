/* Files that were hashed before: which are taken to be the same. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "server/cli/cli.h"
#include "tests/unit/run_tests.h"

#define DIGEST(digit) "sha256:000000000000000000000000000000000000000000000000000000000000000" digit

static char folder[] = "known-files-XXXXXX"; /* in the build's folder: file systems in memory do not count */
static char list[64];

static void make_folder(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(list, sizeof list, "%s/known_files", folder);
}

static void remove_folder(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* A large file that has not changed for two minutes. */
static struct stat settled(void) {
    struct stat facts = {.st_mode = S_IFREG | 0600, .st_dev = 1, .st_ino = 2, .st_size = (off_t)1 << 30};
    facts.st_mtim.tv_sec = facts.st_ctim.tv_sec = time(NULL) - 120;
    facts.st_mtim.tv_nsec = 5;
    return facts;
}

static bool recalls(const struct stat *facts, const char *expected) {
    char digest[FB_ID_LENGTH + 1] = "";
    bool is_found = fb_known_file_recall(folder, folder, facts, digest);
    ck_assert(!is_found || !strcmp(digest, expected));
    return is_found;
}

/* False where the file system is not one of those that count. */
static bool remembers(const struct stat *facts, const char *digest) {
    fb_known_file_remember(folder, folder, facts, digest);
    return recalls(facts, digest);
}

START_TEST(test_the_same) {
    struct stat facts = settled();
    if (!remembers(&facts, DIGEST("1"))) return;
    static const size_t members[] = {offsetof(struct stat, st_dev),          offsetof(struct stat, st_ino),
                                     offsetof(struct stat, st_size),         offsetof(struct stat, st_mtim.tv_sec),
                                     offsetof(struct stat, st_mtim.tv_nsec), offsetof(struct stat, st_ctim.tv_sec),
                                     offsetof(struct stat, st_ctim.tv_nsec)};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct stat other = facts;
        ++*((unsigned char *)&other + members[i]);
        ck_assert_msg(!recalls(&other, ""), "member %zu", i);
    }
    ck_assert(remembers(&facts, DIGEST("2"))); /* the newest counts */
}
END_TEST

START_TEST(test_what_does_not_count) {
    struct stat fresh = settled(), small = settled(), other = settled();
    fresh.st_ctim.tv_sec = time(NULL) - 5;
    small.st_size = 1000;
    other.st_mode = S_IFIFO | 0600;
    ck_assert(!remembers(&fresh, DIGEST("1")) && !remembers(&small, DIGEST("1")) && !remembers(&other, DIGEST("1")));
}
END_TEST

START_TEST(test_many_and_damaged) {
    struct stat facts = settled(), first = settled();
    if (!remembers(&first, DIGEST("1"))) return;
    for (ino_t i = 10; i < 1010; i++) {
        facts.st_ino = i;
        ck_assert(remembers(&facts, DIGEST("2")));
    }
    ck_assert(!recalls(&first, ""));
    FILE *file = fopen(list, "we");
    fprintf(file, "not a line\n\n1 2 3\n%0500d\n", 7);
    fclose(file);
    ck_assert(!recalls(&facts, ""));
    ck_assert(remembers(&facts, DIGEST("3")));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("known_files");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, test_the_same);
    tcase_add_test(tests, test_what_does_not_count);
    tcase_add_test(tests, test_many_and_damaged);
    return run_tests("known_files", tests);
}
