/* What an examination finds in the memory store: the same for each space. */
#include "store/memory/examine.h"

#include "store/findings.h"
#include "store/schemes.h"

void memory_examine_space(struct store_host *host, struct store_op *op) {
    op->examination = findings_new(store_memory.tier);
    if (op->examination &&
        findings_add(op->examination, HF_WARNING, "reach",
                     "they exclude only threads of this program, and end with it",
                     "to share locks among processes, use another store such as sqlite:",
                     "locks are in the memory of this process")) {
        store_complete(host, op, STORE_DONE);
        return;
    }
    op->examination = hf_examination_free(op->examination);
    store_refuse(host, op, HF_NO_MEMORY, NULL);
}
