/* --metrics-file of `holdfast run`: what happened in this run and those before it, in Prometheus' text
 * format, for the textfile collector of node_exporter. */
#ifndef CLI_METRICS_H
#define CLI_METRICS_H

#include "cli/run.h"

/* Whether the file can be kept: 0, or EXIT_USAGE, and it was said why not. */
int metrics_check(const char *path);

/* Adds this run to the file. Says so if that fails; the exit code of the run stays what it is. */
void metrics_write(const struct run *run, int exit_code);

#endif
