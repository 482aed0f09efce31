/* Tables. */
#include "cli/table.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { GAP = 2, LEAST_WIDTH = 8, USUAL_WIDTH = 80, USUAL_HEIGHT = 24 };

#define BOLD "\x1b[1m"
#define YELLOW "\x1b[33m"
#define PLAIN "\x1b[m"

size_t table_terminal_size(int fd, size_t *ret_rows) {
    struct winsize size = {0};
    if (!isatty(fd))
        return 0;
    if (ioctl(fd, TIOCGWINSZ, &size) < 0)
        size = (struct winsize){0};
    if (ret_rows)
        *ret_rows = size.ws_row ? size.ws_row : USUAL_HEIGHT;
    return size.ws_col ? size.ws_col : USUAL_WIDTH;
}

bool table_can_draw(void) {
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

bool table_wants_color(void) {
    const char *no = getenv("NO_COLOR");
    return table_can_draw() && !(no && *no);
}

/* ---- Rows ---- */

static bool room_for_row(struct table *table) {
    if (table->row_count < table->row_room)
        return true;
    size_t room = table->row_room ? 2 * table->row_room : 32;
    char **cells = realloc(table->cells, room * table->column_count * sizeof(*cells));
    if (cells)
        table->cells = cells;
    int *marks = cells ? realloc(table->marks, room * sizeof(*marks)) : NULL;
    if (marks) {
        table->marks = marks;
        table->row_room = room;
    }
    return marks != NULL;
}

bool table_add(struct table *table, const char *const *cells, int mark) {
    if (!room_for_row(table))
        return false;
    char **row = table->cells + table->row_count * table->column_count;
    for (size_t i = 0; i < table->column_count; i++) {
        row[i] = strdup(cells[i]);
        if (!row[i]) {
            while (i > 0)
                free(row[--i]);
            return false;
        }
    }
    table->marks[table->row_count++] = mark;
    return true;
}

static void drop_rows(struct table *table) {
    for (size_t i = 0; i < table->row_count * table->column_count; i++)
        free(table->cells[i]);
    table->row_count = 0;
}

void table_free(struct table *table) {
    drop_rows(table);
    free(table->cells);
    free(table->marks);
    table->cells = NULL;
    table->marks = NULL;
    table->row_room = 0;
}

/* ---- Widths ---- */

static void widen(struct table *table) {
    for (size_t i = 0; i < table->column_count; i++) {
        size_t *width = &table->widths[i], title = text_width(table->columns[i].title);
        if (*width < title)
            *width = title;
        for (size_t row = 0; row < table->row_count; row++) {
            size_t cell = text_width(table->cells[row * table->column_count + i]);
            if (*width < cell)
                *width = cell;
        }
    }
}

/* Finds the widest of the columns that may still be cut. */
static size_t *widest(struct table *table, size_t *widths) {
    size_t *found = NULL;
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].shrink && widths[i] > LEAST_WIDTH && (!found || widths[i] > *found))
            found = &widths[i];
    }
    return found;
}

/* Gives each column the width that it needs; if that is too much, cuts the widest. */
static void share_width(struct table *table, size_t *ret_widths) {
    size_t sum = GAP * (table->column_count - 1), *give;
    for (size_t i = 0; i < table->column_count; i++)
        sum += ret_widths[i] = table->widths[i];
    while (sum > table->width && (give = widest(table, ret_widths))) {
        (*give)--;
        sum--;
    }
}

/* ---- Printing ---- */

static void print_cell(struct table *table, size_t column, const char *text, size_t width,
                       const char *color) {
    char *cut = strdup(text);
    if (!cut)
        return;
    text_cut(cut, width);
    size_t pad = width - text_width(cut);
    bool right = table->columns[column].right, last = column + 1 == table->column_count;
    fprintf(table->file, "%*s%s%s%s%*s", right ? (int)pad : 0, "", color, cut, *color ? PLAIN : "",
            right || last ? 0 : (int)pad, "");
    free(cut);
}

/* Cells beyond the edge of a very narrow terminal are cut there, or left out. */
static void print_aligned(struct table *table, char *const *cells, const size_t *widths, int mark,
                          const char *color) {
    size_t left = table->width;
    for (size_t i = 0; i < table->column_count; i++) {
        size_t gap = i ? GAP : 0;
        if (left <= gap)
            break;
        left -= gap;
        size_t width = widths[i] < left ? widths[i] : left;
        bool colored = table->color && (mark < 0 || (size_t)mark == i);
        fprintf(table->file, "%*s", (int)gap, "");
        print_cell(table, i, cells[i], width, colored ? color : "");
        left -= width;
    }
    fputs(table->line_end ? table->line_end : "\n", table->file);
}

static void print_plain(struct table *table, char *const *cells) {
    for (size_t i = 0; i < table->column_count; i++)
        fprintf(table->file, "%s%s", i ? "\t" : "", cells[i]);
    putc('\n', table->file);
}

static void print_titles(struct table *table, const size_t *widths) {
    char *titles[TABLE_COLUMNS_MAX];
    for (size_t i = 0; i < table->column_count; i++)
        titles[i] = (char *)table->columns[i].title;
    if (table->width)
        print_aligned(table, titles, widths, -1, BOLD);
    else
        print_plain(table, titles);
}

void table_flush(struct table *table) {
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    if (table->width) {
        widen(table);
        share_width(table, widths);
    }
    if (!table->titled)
        print_titles(table, widths);
    table->titled = true;
    for (size_t row = 0; row < table->row_count; row++) {
        char *const *cells = table->cells + row * table->column_count;
        int mark = table->marks[row];
        if (table->width)
            print_aligned(table, cells, widths, mark, mark < 0 ? "" : YELLOW);
        else
            print_plain(table, cells);
    }
    drop_rows(table);
}
