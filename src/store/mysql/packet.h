/* The protocol between MySQL or MariaDB and its clients, as far as it is needed: packets, the
 * greeting and the login, queries and their results in text. It deals only with bytes.
 *
 * Why not libmariadb: it blocks in the TLS handshake, even in its non-blocking calls. It verifies
 * the certificate against the name that it looks up itself, which also blocks. And it sends one
 * query at a time. */
#ifndef MYSQL_PACKET_H
#define MYSQL_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MY_HEADER = 4, MY_NONCE = 20 };

/* ---- Packets from the server ---- */

struct my_reader {
    char *bytes;
    size_t size, room, at; /* `at`: the first byte that was not taken yet */
};

/* False: no memory. */
bool my_reader_feed(struct my_reader *reader, const char *bytes, size_t size);
void my_reader_clear(struct my_reader *reader);

struct my_packet {
    const uint8_t *bytes;
    size_t size;
    uint8_t number;
};

enum my_next { MY_NONE, MY_PACKET, MY_BAD_PACKET };

/* The next whole packet. It is valid until more is fed. */
enum my_next my_reader_next(struct my_reader *reader, struct my_packet *ret_packet);

/* ---- The login ---- */

struct my_greeting {
    char version[64]; /* MariaDB's without its prefix "5.5.5-" */
    uint32_t session; /* its number */
    bool is_mariadb;
    uint32_t capabilities;
    char plugin[32];
    uint8_t nonce[MY_NONCE];
};

/* False: this is not a greeting. */
bool my_read_greeting(const struct my_packet *packet, struct my_greeting *ret);

/* A server that wants another kind of proof names it, with another nonce. */
bool my_read_switch(const struct my_packet *packet, struct my_greeting *greeting);

bool my_offers_tls(const struct my_greeting *greeting);

/* The capabilities that this client asks for, of those that the server has. */
uint32_t my_capabilities(const struct my_greeting *greeting, bool tls);

enum { MY_TLS_REQUEST_SIZE = MY_HEADER + 32, MY_PROOF_MAX = 32 };
void my_write_tls_request(uint32_t capabilities, uint8_t number,
                          uint8_t ret_bytes[MY_TLS_REQUEST_SIZE]);

/* The proof that the client knows the password; its size, or -1 for an unknown plugin. An empty
 * password has an empty proof. */
int my_prove(const char *plugin, const char *password, const uint8_t nonce[MY_NONCE],
             uint8_t ret_proof[MY_PROOF_MAX]);

/* The login as a malloc'd packet; NULL: no memory. */
char *my_write_login(const struct my_greeting *greeting, uint32_t capabilities, uint8_t number,
                     const char *user, const char *database, const uint8_t *proof,
                     size_t proof_size, size_t *ret_size);

/* Puts a packet's header before its content. */
void my_write_header(char ret_bytes[MY_HEADER], size_t size, uint8_t number);

/* ---- Results ---- */

/* An error, or the rows of a query. Without columns, the query gave no rows. */
struct my_result {
    unsigned error; /* 0: no error */
    char text[200]; /* of the error */
    unsigned columns;
    size_t rows;
    size_t *cells; /* where each value begins in `bytes`; it ends with a 0 */
    size_t cell_count, cell_room;
    char *bytes;
    size_t size, room;
};

void my_result_clear(struct my_result *result);

/* The value in a column, from 0; "" for NULL. */
const char *my_value(const struct my_result *result, size_t row, unsigned column);
bool my_is_null(const struct my_result *result, size_t row, unsigned column);
int64_t my_number(const struct my_result *result, size_t row, unsigned column);

void my_read_error(const struct my_packet *packet, struct my_result *ret);

/* How much of the answer to a query has arrived. A query may have several statements, and a call
 * several results; the rows that are kept are those of the last that has some. */
struct my_answer {
    enum { MY_AT_START, MY_AT_COLUMNS, MY_AT_ROWS } at;
    uint64_t columns_left;
    struct my_result result;
};

enum my_step { MY_GOES_ON, MY_ENDED, MY_BROKEN, MY_NO_MEMORY };

/* Takes the next packet. */
enum my_step my_answer_take(struct my_answer *answer, const struct my_packet *packet);

#endif
