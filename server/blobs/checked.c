/* Files of blobs whose bytes were compared with their digests, so that this is done once for each file and process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/blobs/files.h"

#define MOST 4096 /* files that are remembered; the oldest goes */

typedef struct fb_checked_file {
    char digest[FB_ID_LENGTH + 1];
    struct stat about;
    bool is_busy; /* a thread is reading it */
} fb_checked_file;

void fb_checked_init(fb_checked *checked) {
    *checked = (fb_checked){0};
    pthread_mutex_init(&checked->mutex, NULL);
    pthread_cond_init(&checked->changed, NULL);
}

void fb_checked_free(fb_checked *checked) {
    pthread_mutex_destroy(&checked->mutex);
    pthread_cond_destroy(&checked->changed);
    free(checked->files);
}

static bool is_same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* A file that was written to, or replaced, is another one. */
static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           is_same_time(&a->st_mtim, &b->st_mtim) && is_same_time(&a->st_ctim, &b->st_ctim);
}

static fb_checked_file *find(const fb_checked *checked, const char *digest) {
    for (size_t i = 0; i < checked->count; i++) {
        if (!strcmp(checked->files[i].digest, digest)) return &checked->files[i];
    }
    return NULL;
}

/* A row for one more file; NULL: memory is out, or all rows are busy. */
static fb_checked_file *add(fb_checked *checked) {
    if (checked->count < MOST) {
        fb_checked_file *files = realloc(checked->files, (checked->count + 1) * sizeof *files);
        if (!files) return NULL;
        checked->files = files;
        return &files[checked->count++];
    }
    for (size_t i = 0; i < MOST; i++) {
        fb_checked_file *file = &checked->files[checked->oldest++ % MOST];
        if (!file->is_busy) return file;
    }
    return NULL;
}

bool fb_checked_begin(fb_checked *checked, const char *digest, const struct stat *about) {
    pthread_mutex_lock(&checked->mutex);
    fb_checked_file *file = find(checked, digest);
    while (file && file->is_busy) {
        pthread_cond_wait(&checked->changed, &checked->mutex);
        file = find(checked, digest);
    }
    bool is_right = file && is_same_file(&file->about, about);
    if (!file) file = add(checked);
    if (!is_right && file) {
        *file = (fb_checked_file){.about = *about, .is_busy = true};
        memcpy(file->digest, digest, sizeof file->digest);
    }
    pthread_mutex_unlock(&checked->mutex);
    return !is_right;
}

void fb_checked_end(fb_checked *checked, const char *digest, bool is_right) {
    pthread_mutex_lock(&checked->mutex);
    fb_checked_file *file = find(checked, digest);
    if (file && file->is_busy) {
        file->is_busy = false;
        if (!is_right) *file = checked->files[--checked->count];
    }
    pthread_cond_broadcast(&checked->changed);
    pthread_mutex_unlock(&checked->mutex);
}
