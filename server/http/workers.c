/* The bounded queue between I/O threads and workers, and the workers. */
#include "server/http/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static fb_job *pop(fb_queue *queue) {
    fb_job *job = queue->head;
    if (!job) return NULL;
    queue->head = job->next;
    if (!queue->head) queue->tail = &queue->head;
    queue->depth -= job->is_request;
    return job;
}

static void *work(void *context) {
    fb_queue *queue = context;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        while (!queue->head && !queue->is_closed) pthread_cond_wait(&queue->ready, &queue->lock);
        fb_job *job = pop(queue);
        pthread_mutex_unlock(&queue->lock);
        if (!job) return NULL; /* closed and empty */
        job->run(job->argument);
    }
}

fb_status fb_queue_start(fb_queue *queue, unsigned threads, unsigned limit, fb_error *error) {
    queue->limit = limit;
    queue->tail = &queue->head;
    queue->threads = calloc(threads, sizeof *queue->threads);
    if (!queue->threads) return fb_fail_memory(error);
    for (; queue->thread_count < threads; queue->thread_count++) {
        int failure = fb_http_thread(&queue->threads[queue->thread_count], work, queue);
        if (failure) return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a worker thread: %s", strerror(failure));
    }
    return FB_OK;
}

bool fb_queue_push(fb_queue *queue, fb_job *job) {
    pthread_mutex_lock(&queue->lock);
    bool is_taken = !queue->is_closed && (!job->is_request || queue->depth < queue->limit);
    if (is_taken) {
        job->next = NULL;
        *queue->tail = job;
        queue->tail = &job->next;
        queue->depth += job->is_request;
        pthread_cond_signal(&queue->ready);
    }
    pthread_mutex_unlock(&queue->lock);
    return is_taken;
}

void fb_queue_stop(fb_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->is_closed = true;
    pthread_cond_broadcast(&queue->ready);
    pthread_mutex_unlock(&queue->lock);
    work(queue); /* here too: what waits must not wait for a worker that is held up */
    for (unsigned i = 0; i < queue->thread_count; i++) pthread_join(queue->threads[i], NULL);
    free(queue->threads);
    queue->threads = NULL;
    queue->thread_count = 0;
}
