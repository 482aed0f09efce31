/* Tables. On a terminal the columns are aligned and share its width, and long cells are cut;
 * elsewhere cells are complete and separated by tabs. Rows are kept only until table_flush: a long
 * table is printed in portions, and its columns are as wide as the widest cell so far. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 8 };

struct table_column {
    const char *title;
    bool right;  /* for numbers and times */
    bool shrink; /* may be cut when the terminal is narrow */
};

struct table {
    FILE *file;
    const struct table_column *columns;
    size_t column_count, row_count, row_room;
    char **cells;
    int *marks; /* for each row: the highlighted column, or -1 */
    size_t widths[TABLE_COLUMNS_MAX];
    size_t width;         /* of the terminal; 0: there is none */
    const char *line_end; /* NULL: "\n" */
    bool color, titled;
};

/* Returns the width of the terminal `fd`, 0 if it is none, and its height. */
size_t table_terminal_size(int fd, size_t *ret_rows);

/* Whether the terminal understands escapes (TERM=dumb: no), and whether colours are wanted on it
 * (NO_COLOR: no). */
bool table_can_draw(void);
bool table_wants_color(void);

/* Adds a row. Its cells are copied, and must be safe to print. False: no memory. */
bool table_add(struct table *table, const char *const *cells, int mark);

/* Prints the rows added since the last call, after the titles if this is the first. */
void table_flush(struct table *table);
void table_free(struct table *table);

#endif
