/* --metrics-file of `holdfast run`: counts this run and those before it, in Prometheus' text
 * format, for the textfile collector of node_exporter. */
#ifndef CLI_METRICS_H
#define CLI_METRICS_H

#include "cli/run.h"

/* Checks that the file can be used. Returns 0, or EXIT_USAGE after printing an error. */
int metrics_check(const char *path);

/* Adds this run to the file. Prints an error if that fails; the exit code of the run does not
 * change. */
void metrics_write(const struct run *run, int exit_code);

#endif
