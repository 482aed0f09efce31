/* A resource on this host that refuses stale tokens. A file of tokens keeps the largest token seen
 * for each name, and its lock (flock) makes the check and the write one step: nobody passes the
 * check while somebody else writes. hf_fence_open and `holdfast fence` use it.
 *
 * The file has one line for each name: the token, a space, and the name, in which control
 * characters and backslashes are escaped. It and the data are replaced by renames and are durable
 * when a call returns, so a crash leaves the old file or the new one, and no token that was
 * accepted is forgotten. */
#ifndef BASE_FENCE_FILE_H
#define BASE_FENCE_FILE_H

#include <holdfast/holdfast.h>
#include <limits.h>

struct fence_token {
    const char *name;
    uint64_t token;
};

struct fence_file {
    int folder, tokens;         /* descriptors: the folder, and the file of tokens, locked */
    char name[NAME_MAX + 1];    /* of the file of tokens in its folder */
    struct fence_token refused; /* after HF_LOST: which one, … */
    uint64_t seen;              /* … and the larger token that was in the file */
    char why[512];              /* after any other error: what failed */
};

/* Waits for the lock on the file of tokens, and creates that file if it is missing. Its path is
 * `path` plus `suffix`. Checks the tokens and remembers them. After HF_OK nobody else enters until
 * fence_file_leave.
 * Errors: LOST (one is refused; none is remembered), BAD_STORE (not a file of tokens), SYSTEM. */
int fence_file_enter(struct fence_file *file, const char *path, const char *suffix,
                     const struct fence_token *tokens, size_t count);

/* Replaces the content of the file `name` in the same folder. Permissions and group stay, and so
 * does the owner if the caller may set it. The new content is first written to a file of ours,
 * whose name is that of the file of tokens plus ".data".
 * Errors: SYSTEM; the file then has its old content or the new one. */
int fence_file_replace(struct fence_file *file, const char *name, const void *data, size_t size);

void fence_file_leave(struct fence_file *file);

/* The part of a path after its last slash. */
const char *fence_file_base(const char *path);

#endif
