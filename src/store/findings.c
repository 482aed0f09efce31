#include "store/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hf_examination *findings_new(const char *tier) {
    hf_examination *examination = malloc(sizeof(*examination));
    if (examination)
        *examination = (hf_examination){
            .size = sizeof(*examination), .tier = tier, .write_us = -1, .slowest_us = -1};
    return examination;
}

static hf_finding *finding_new(hf_severity severity, const char *id, const char *found,
                               const char *means, const char *fix) {
    const char *texts[] = {id, found, means, fix};
    const char *kept[4];
    size_t size = sizeof(hf_finding);
    for (int i = 0; i < 4; i++)
        size += strlen(texts[i]) + 1;
    hf_finding *finding = malloc(size);
    if (!finding)
        return NULL;
    char *end = (char *)(finding + 1);
    for (int i = 0; i < 4; i++) {
        kept[i] = end;
        end = stpcpy(end, texts[i]) + 1;
    }
    *finding = (hf_finding){sizeof(*finding), severity, kept[0], kept[1], kept[2], kept[3]};
    return finding;
}

bool findings_add(hf_examination *to, hf_severity severity, const char *id, const char *means,
                  const char *fix, const char *found, ...) {
    char text[1024];
    va_list values;
    va_start(values, found);
    vsnprintf(text, sizeof(text), found, values);
    va_end(values);
    const hf_finding **room =
        realloc((void *)to->findings, (to->count + 1) * sizeof(*to->findings));
    if (!room)
        return false;
    to->findings = room;
    room[to->count] = finding_new(severity, id, text, means, fix);
    if (!room[to->count])
        return false;
    to->count++;
    return true;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void findings_measured(hf_examination *to, int64_t *us, size_t count) {
    if (!count)
        return;
    qsort(us, count, sizeof(*us), by_size);
    to->write_us = us[count / 2];
    to->slowest_us = us[count - 1];
}

hf_examination *hf_examination_free(hf_examination *examination) {
    if (!examination)
        return NULL;
    for (size_t i = 0; i < examination->count; i++)
        free((void *)examination->findings[i]);
    free((void *)examination->findings);
    free(examination);
    return NULL;
}
