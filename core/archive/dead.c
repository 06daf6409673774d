/* Finds what ExportedProgram.module() leaves out of a program in core ATen: calls, and items of results, that nothing reads and
 * that do nothing else. Programs as torch.export gives them at first ("TRAINING") keep them. */
#include <string.h>

#include "core/archive/internal.h"
#include "core/operators/op.h"
#include "core/operators/spelling.h"

typedef enum purity { PURE, IMPURE, UNKNOWN } purity;

/* As torch._library.utils.is_impure has it: operators that write, assert, or draw random numbers. */
static purity purity_of(const char *target) {
    if (fb_is_spelled(target, FB_HIGHER_ORDER "auto_functionalized")) return UNKNOWN;
    if (!fb_is_spelled(target, FB_REGISTERED) || fb_is_spelled(target, FB_HIGHER_ORDER)) return PURE;
    fb_op op = fb_op_of_function(target, strlen(target));
    const fb_op_facts *facts = fb_op_facts_of(op);
    uint32_t flags = facts->flags;
    if (fb_is_spelled(target, FB_ATEN) && fb_has_word(facts->kept, target + strlen(FB_ATEN), strlen(target) - strlen(FB_ATEN)))
        return IMPURE;
    if (op == FB_OP_UNKNOWN || flags & (FB_FACT_EFFECT | FB_FACT_MUTATES_IN_TRAINING)) return UNKNOWN;
    if (op & FB_OP_IN_PLACE || flags & (FB_FACT_MUTATES | FB_FACT_RANDOM_IN_TRAINING)) return IMPURE;
    return flags & FB_FACT_RANDOM ? IMPURE : PURE;
}

bool pt_is_pure(const char *target) {
    return purity_of(target) == PURE;
}

static bool is_kept(pt_model *m, const pt_row *row, bool *out) {
    *out = row->is_read || row->kind == PT_INPUT || row->kind == PT_STATE || row->kind == PT_COPY || row->kind == PT_OUTPUT;
    if (*out || row->kind != PT_CALL) return true;
    purity found = purity_of(row->target);
    *out = found == IMPURE;
    return found != UNKNOWN ||
           pt_unsupported(m, m->program_file.name, "nothing reads \"%s\", and it is not known whether %s does something else",
                          row->name, row->target);
}

bool pt_remove_dead(pt_model *m, pt_program *p) {
    fb_buffer scratch = {0};
    bool ok = true;
    for (uint32_t i = p->count; i-- > 0 && ok;) {
        pt_row *row = &p->rows[i];
        pt_spelling a = {.m = m, .program = p, .row = row, .reads = p->rows};
        bool stays = true;
        scratch.size = 0;
        ok = fb_work_goes_on(m->work, 256) && is_kept(m, row, &stays);
        row->is_dead = !stays;
        if (ok && stays) ok = pt_put_all(&a, &scratch, &scratch);
        if (ok && stays && row->kind == PT_PROGRAM) ok = pt_remove_dead(m, row->program);
    }
    fb_buffer_free(&scratch);
    return ok;
}
