/* The bounded queue between I/O threads and workers, and the workers. */
#include "server/http/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static fb_exchange *pop(fb_queue *queue) {
    fb_exchange *exchange = queue->head;
    if (!exchange) return NULL;
    queue->head = exchange->next;
    if (!queue->head) queue->tail = &queue->head;
    queue->depth--;
    return exchange;
}

static void *work(void *context) {
    fb_queue *queue = context;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        while (!queue->head && !queue->is_closed) pthread_cond_wait(&queue->ready, &queue->lock);
        fb_exchange *exchange = pop(queue);
        pthread_mutex_unlock(&queue->lock);
        if (!exchange) return NULL; /* closed and empty */
        struct MHD_Connection *mhd = exchange->mhd;
        fb_exchange_work(exchange);
        MHD_resume_connection(mhd); /* from here on the exchange is its I/O thread's again */
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

bool fb_queue_push(fb_queue *queue, fb_exchange *exchange) {
    pthread_mutex_lock(&queue->lock);
    bool is_taken = !queue->is_closed && queue->depth < queue->limit;
    if (is_taken) {
        /* Under the lock: no worker may resume the connection before it is suspended. */
        MHD_suspend_connection(exchange->mhd);
        exchange->next = NULL;
        *queue->tail = exchange;
        queue->tail = &exchange->next;
        queue->depth++;
        pthread_cond_signal(&queue->ready);
    }
    pthread_mutex_unlock(&queue->lock);
    return is_taken;
}

void fb_queue_refuse_waiting(fb_queue *queue) {
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        fb_exchange *exchange = pop(queue);
        pthread_mutex_unlock(&queue->lock);
        if (!exchange) return;
        fb_respond_problem(&exchange->response, 503, "stopping", "the server is stopping");
        fb_response_header(&exchange->response, "Retry-After", "1");
        exchange->must_close = true;
        MHD_resume_connection(exchange->mhd);
    }
}

void fb_queue_stop(fb_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->is_closed = true;
    pthread_cond_broadcast(&queue->ready);
    pthread_mutex_unlock(&queue->lock);
    for (unsigned i = 0; i < queue->thread_count; i++) pthread_join(queue->threads[i], NULL);
    free(queue->threads);
    queue->threads = NULL;
    queue->thread_count = 0;
}
