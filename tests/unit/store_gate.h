/* Keeps the store's writer busy for a while, so that what comes meanwhile forms one group. */
#ifndef FB_TESTS_STORE_GATE_H
#define FB_TESTS_STORE_GATE_H

#include <pthread.h>

#include "server/store/state.h"

typedef struct store_gate {
    fb_store *store;
    pthread_t holder;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_entered, is_open;
} store_gate;

/* Returns when the writer waits at the gate. */
void close_gate(store_gate *gate, fb_store *store);
/* Returns when the writer has left it. */
void open_gate(store_gate *gate);

/* Waits until that many writes are in the queue. */
void wait_for_queue(fb_store *store, size_t count);

#endif
