/* The stored rules, for compositions that name them. */
#ifndef FB_GRAPHS_RULE_LIBRARY_H
#define FB_GRAPHS_RULE_LIBRARY_H

#include "core/compose/composition.h"
#include "server/app.h"
#include "server/store/rules.h"

/* Borrows the app. */
fb_rule_library fb_rule_library_of(const fb_app *app);
/* A rule of the store; FB_IO "store-corrupt" when it cannot be read. */
fb_status fb_stored_rule_read(const fb_store_rule *stored, fb_rule **out, fb_error *error);

#endif
