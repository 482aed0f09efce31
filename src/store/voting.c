/* Rules that all nodes of a set share (voting.h). */
#include "store/voting.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int store_check_retake(uint64_t counter, uint64_t token, char **ret_text) {
    if (counter <= token)
        return HF_OK;
    *ret_text = error_format("its token is now %" PRIu64, counter);
    return HF_NOT_YOURS;
}

void store_refuse_vote(struct store_host *host, struct store_vote *vote, const char *theirs,
                       const char *ours) {
    char *difference = store_compare_sets(theirs, ours);
    store_refuse(host, &vote->op, HF_BAD_URL,
                 error_format("it votes in the set %s, not in %s: %s", theirs, ours,
                              difference ? difference : ""));
    free(difference);
}

/* The parts of a set's name, found from its end: an id may have a '/' in it. */
struct set_name {
    char *id;
    const char *servers, *quorum, *lease_ms;
    bool is_durable;
};

static char *cut_last(char *text) {
    char *slash = strrchr(text, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    return slash + 1;
}

static bool parse_set(char *text, struct set_name *ret) {
    size_t size = strlen(text), durable = strlen("/durable");
    ret->is_durable = size > durable && strcmp(text + size - durable, "/durable") == 0;
    if (ret->is_durable)
        text[size - durable] = 0;
    ret->id = text;
    return (ret->lease_ms = cut_last(text)) && (ret->quorum = cut_last(text)) &&
           (ret->servers = cut_last(text));
}

static void add_difference(char *text, size_t size, const char *what, const char *theirs,
                           const char *ours) {
    if (strcmp(theirs, ours) != 0)
        error_append(text, size, "%s%s is %s there and %s here", *text ? ", " : "", what, theirs,
                     ours);
}

char *store_compare_sets(const char *theirs, const char *ours) {
    char a[256], b[256], text[400] = "";
    struct set_name there, here;
    snprintf(a, sizeof(a), "%s", theirs);
    snprintf(b, sizeof(b), "%s", ours);
    if (!parse_set(a, &there) || !parse_set(b, &here))
        return error_format("%s is not the name of a set", theirs);
    add_difference(text, sizeof(text), "the number of servers", there.servers, here.servers);
    add_difference(text, sizeof(text), "the quorum", there.quorum, here.quorum);
    add_difference(text, sizeof(text), "max_lease in ms", there.lease_ms, here.lease_ms);
    add_difference(text, sizeof(text), "durable", there.is_durable ? "yes" : "not set",
                   here.is_durable ? "yes" : "not set");
    if (strcmp(there.id, here.id) != 0)
        error_append(text, sizeof(text), "%s%s", *text ? ", " : "",
                     "the servers differ, or have other names in the URL, or its id= differs");
    return error_format("%s", text);
}
