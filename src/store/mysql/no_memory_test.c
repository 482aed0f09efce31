/* Fails each allocation in turn that the MySQL store makes, with a real server: see
 * sql_no_memory.h. */
#define TEST_TIMEOUT_S 300
#define TEST_JOBS_MOST 1
#include "support/sql_no_memory.h"

#include <errno.h>

FAILING_CALL(FILE *, open_memstream, ENOMEM, NULL, (char **ret_text, size_t *ret_size),
             (ret_text, ret_size))

TEST(leases_survive_failed_allocations) {
    fail_everywhere(story, "");
}

TEST(row_locks_survive_failed_allocations) {
    fail_everywhere(story, "&scheme=for-update");
}
