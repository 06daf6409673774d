/* What differs between two rows, member by member. */
#ifndef FB_DIFF_MEMBERS_H
#define FB_DIFF_MEMBERS_H

#include "core/diff/diff.h"

/* The members in which two rows of a table differ, in the arena, texts and pointers too; none when the rows are equal. False
 * when memory is out. */
bool fb_members_compare(fb_document_table table, fb_span was, fb_span now, fb_arena *arena, fb_member_edit **out,
                        size_t *count);

#endif
