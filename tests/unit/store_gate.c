#include "tests/unit/store_gate.h"

#include "tests/unit/checks.h"
#include <unistd.h>

#include "tests/unit/store_fixture.h"

static fb_status wait_at_gate(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)connection, (void)added, (void)error;
    store_gate *gate = argument;
    pthread_mutex_lock(&gate->mutex);
    gate->is_entered = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->is_open) pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
    return FB_OK;
}

static void *enter_gate(void *argument) {
    store_gate *gate = argument;
    fb_writer_run(&gate->store->writer, wait_at_gate, gate, NULL);
    return NULL;
}

void close_gate(store_gate *gate, fb_store *store) {
    *gate = (store_gate){.store = store};
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->changed, NULL);
    ck_assert_int_eq(pthread_create(&gate->holder, NULL, enter_gate, gate), 0);
    pthread_mutex_lock(&gate->mutex);
    while (!gate->is_entered) pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

void open_gate(store_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
    pthread_join(gate->holder, NULL);
}

void wait_for_queue(fb_store *store, size_t count) {
    while (fb_writer_read_figures(&store->writer).queued < count) usleep(1000);
}
