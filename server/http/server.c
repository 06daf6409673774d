/* Starting and stopping. */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The bounded queue between I/O threads and workers, and the workers. */

static fb_job *pop(fb_queue *queue) {
    fb_job *job = queue->head;
    if (!job) return NULL;
    queue->head = job->next;
    if (!queue->head) queue->tail = &queue->head;
    queue->depth -= job->is_request;
    queue->pending--;
    return job;
}

static void *work(void *context) {
    fb_queue *queue = context;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        queue->idle++;
        while (!queue->head && !queue->is_closed) pthread_cond_wait(&queue->ready, &queue->lock);
        queue->idle--;
        fb_job *job = pop(queue);
        pthread_mutex_unlock(&queue->lock);
        if (!job) return NULL; /* closed and empty */
        job->run(job->argument);
    }
}

static int start_worker(fb_queue *queue) {
    int failure = fb_http_thread(&queue->threads[queue->thread_count], work, queue);
    queue->thread_count += !failure;
    return failure;
}

/* Starts one worker; others are started when a job finds none that is idle. */
static fb_status queue_start(fb_queue *queue, unsigned threads, unsigned limit, fb_error *error) {
    queue->limit = limit;
    queue->tail = &queue->head;
    queue->most_threads = threads;
    queue->threads = calloc(threads, sizeof *queue->threads);
    if (!queue->threads) return fb_fail_memory(error);
    int failure = start_worker(queue);
    return failure ? fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a worker thread: %s", strerror(failure)) : FB_OK;
}

bool fb_queue_push(fb_queue *queue, fb_job *job) {
    pthread_mutex_lock(&queue->lock);
    bool is_taken = !queue->is_closed && (!job->is_request || queue->depth < queue->limit);
    if (is_taken) {
        job->next = NULL;
        *queue->tail = job;
        queue->tail = &job->next;
        queue->depth += job->is_request;
        queue->pending++;
        bool is_short = queue->pending > queue->idle && queue->thread_count < queue->most_threads;
        if (is_short) (void)start_worker(queue); /* else it waits for those that there are */
    }
    pthread_mutex_unlock(&queue->lock);
    if (is_taken) pthread_cond_signal(&queue->ready);
    return is_taken;
}

/* Takes no more; does what waits, and waits for what runs. */
static void queue_stop(fb_queue *queue) {
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

int fb_http_thread(pthread_t *thread, void *(*start)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, start, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

fb_http_config fb_http_config_default(void) {
    return (fb_http_config){
        .listen = "127.0.0.1:8080",
        .io_threads = 2,
        .worker_threads = 64, /* most wait for a commit: the more there are, the more of them share it */
        .queue_limit = 256,
        .connection_limit = 1024,
        .connection_limit_per_address = FB_HTTP_HALF,
        .stream_limit = 256,
        .target_limit = (size_t)8 << 10,
        .header_limit = (size_t)32 << 10,
        .body_limit = (uint64_t)1 << 30,
        .body_ratio = 200,
        .body_memory_limit = (uint64_t)4 << 30,
        .header_timeout_ms = 10 * 1000,
        .idle_timeout_ms = 60 * 1000,
        .body_timeout_ms = 30 * 1000,
        .minimum_rate = 64 << 10,
        .request_timeout_ms = 120 * 1000,
        .compress = true,
        .access_log = stderr,
    };
}

/* Paths and queries stay as they were sent: target.c decodes them. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text) {
    (void)context, (void)mhd;
    return strlen(text);
}

/* The ciphers of TLS 1.2 and 1.3 that are not known to be weak. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* libmicrohttpd's own limit on connections, divided among its threads: never reached, for ours is less; see connection.c. */
#define OUT_OF_REACH ((unsigned)INT_MAX)

static fb_status start_daemon(fb_http_server *server, fb_error *error) {
    const fb_http_config *config = &server->config;
    bool has_tls = config->tls_key && config->listen;
    struct MHD_OptionItem tls[] = {
        {has_tls ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, (void *)(uintptr_t)config->tls_key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)config->tls_certificate},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    size_t memory = 2 * (config->header_limit + config->target_limit); /* above our limits, so that ours answer first */
    if (memory < (size_t)128 << 10) memory = (size_t)128 << 10;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC |
            (has_tls ? MHD_USE_TLS : MHD_NO_FLAG),
        0, NULL, NULL, fb_exchange_step, server, MHD_OPTION_URI_LOG_CALLBACK, fb_exchange_begin, server,
        MHD_OPTION_NOTIFY_COMPLETED, fb_exchange_end, server, MHD_OPTION_NOTIFY_CONNECTION, fb_connection_notify, server,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, server, MHD_OPTION_THREAD_POOL_SIZE, config->io_threads,
        MHD_OPTION_CONNECTION_LIMIT, OUT_OF_REACH, MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory, MHD_OPTION_CONNECTION_TIMEOUT,
        0u, MHD_OPTION_STRICT_FOR_CLIENT, fb_guard_sees_lines() ? 0 : 1, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (server->daemon) return FB_OK;
    if (has_tls)
        return fb_fail(error, FB_INVALID, "bad-certificate", NULL, "cannot serve TLS with that certificate and that key");
    return fb_fail(error, FB_IO, "no-server", NULL, "cannot start the HTTP server: %s", strerror(errno));
}

unsigned fb_http_descriptors(const fb_http_config *config) {
    const unsigned own = 3 /* the listening socket, and what wakes the two threads of ours */,
                   of_io_thread = 2 /* epoll, and what wakes it */, of_probe = 3;
    return own + of_io_thread * config->io_threads + LINGER_MAX + of_probe;
}

static void free_server(fb_http_server *server) {
    pthread_mutex_destroy(&server->flight_lock);
    pthread_cond_destroy(&server->landed);
    pthread_mutex_destroy(&server->queue.lock);
    pthread_cond_destroy(&server->queue.ready);
    pthread_mutex_destroy(&server->reaper.lock);
    pthread_mutex_destroy(&server->streams.lock);
    fb_rates_free(&server->rates);
    if (server->listener.wake >= 0) close(server->listener.wake);
    free(server->metrics);
    free(server);
}

/* Waits until no request is under way; false when the time is up first. */
static bool wait_until_landed(fb_http_server *server, unsigned timeout_ms) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_nsec -= 1000000000;
        deadline.tv_sec++;
    }
    pthread_mutex_lock(&server->flight_lock);
    int result = 0;
    while (server->in_flight && result == 0) result = pthread_cond_timedwait(&server->landed, &server->flight_lock, &deadline);
    bool has_landed = server->in_flight == 0;
    pthread_mutex_unlock(&server->flight_lock);
    return has_landed;
}

/* For the answers of requests that a stop has ended: their workers are done, and the I/O threads still have to send. */
#define LAST_ANSWERS_MS 2000

static void stop_threads(fb_http_server *server) {
    queue_stop(&server->queue);
    wait_until_landed(server, LAST_ANSWERS_MS);
    fb_reaper_shut_all(server);
    if (server->daemon) MHD_stop_daemon(server->daemon); /* ends every exchange and connection */
    fb_reaper_stop(server);
}

fb_status fb_http_start(const fb_http_config *config, const fb_route *routes, size_t route_count, void *context,
                        fb_http_server **out, fb_error *error) {
    for (size_t i = 0; i < route_count; i++)
        if (!fb_route_check(&routes[i], error)) return FB_INVALID;
    fb_http_server *server = calloc(1, sizeof *server);
    if (!server) return fb_fail_memory(error);
    server->config = *config;
    server->routes = routes;
    server->route_count = route_count;
    server->context = context;
    server->listener.socket = server->listener.wake = server->reaper.wake = -1;
    atomic_init(&server->listener.handed, -1);
    server->metrics = calloc(route_count + 1, sizeof *server->metrics);
    pthread_mutex_init(&server->flight_lock, NULL);
    pthread_mutex_init(&server->queue.lock, NULL);
    pthread_mutex_init(&server->reaper.lock, NULL);
    pthread_mutex_init(&server->streams.lock, NULL);
    pthread_cond_init(&server->queue.ready, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->landed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    fb_status status = fb_rates_init(&server->rates, config->rate_limit, error);
    if (!status && !server->metrics) status = fb_fail_memory(error);
    if (!status && config->listen) status = fb_listener_open(&server->listener, config->listen, config->tls_key, error);
    if (!status) status = queue_start(&server->queue, config->worker_threads, config->queue_limit, error);
    if (!status) status = fb_reaper_start(server, error);
    if (!status) status = start_daemon(server, error);
    if (!status && config->listen) status = fb_listener_start(server, error);
    if (!status) {
        *out = server;
        return FB_OK;
    }
    stop_threads(server);
    fb_listener_stop(&server->listener, false);
    free_server(server);
    return status;
}

const char *fb_http_url(const fb_http_server *server) {
    return server->listener.url;
}

bool fb_http_stop(fb_http_server *server, unsigned timeout_ms) {
    if (!server) return true;
    atomic_store(&server->is_stopping, true);
    fb_streams_end(server);
    fb_listener_stop(&server->listener, server->config.listen != NULL);
    bool is_clean = wait_until_landed(server, timeout_ms);
    if (!is_clean) atomic_store(&server->is_out_of_time, true);
    stop_threads(server);
    free_server(server);
    return is_clean;
}
