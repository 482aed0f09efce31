#include "store/mysql/packet.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PACKET_MAX = 0xffffff, /* a packet of this size is continued in the next */
    SERVER_SPOKE_OK = 0x00,
    SERVER_SPOKE_SWITCH = 0xfe,
    SERVER_SPOKE_EOF = 0xfe,
    SERVER_SPOKE_ERROR = 0xff,
    SERVER_WANTS_A_FILE = 0xfb,
    NULL_VALUE = 0xfb,
    MORE_RESULTS = 0x0008,
    CHARSET_UTF8MB4 = 45,
};

enum {
    CLIENT_LONG_PASSWORD = 1,
    CLIENT_CONNECT_WITH_DB = 8,
    CLIENT_PROTOCOL_41 = 1 << 9,
    CLIENT_SSL = 1 << 11,
    CLIENT_TRANSACTIONS = 1 << 13,
    CLIENT_SECURE_CONNECTION = 1 << 15,
    CLIENT_MULTI_STATEMENTS = 1 << 16,
    CLIENT_MULTI_RESULTS = 1 << 17,
    CLIENT_PLUGIN_AUTH = 1 << 19,
};

/* ---- Packets ---- */

static bool make_room(char **bytes, size_t *room, size_t size) {
    if (size <= *room)
        return true;
    size_t more = *room ? *room : 512;
    while (more < size)
        more *= 2;
    char *grown = realloc(*bytes, more);
    if (!grown)
        return false;
    *bytes = grown;
    *room = more;
    return true;
}

bool my_reader_feed(struct my_reader *reader, const char *bytes, size_t size) {
    if (reader->at) {
        memmove(reader->bytes, reader->bytes + reader->at, reader->size - reader->at);
        reader->size -= reader->at;
        reader->at = 0;
    }
    if (!make_room(&reader->bytes, &reader->room, reader->size + size))
        return false;
    memcpy(reader->bytes + reader->size, bytes, size);
    reader->size += size;
    return true;
}

void my_reader_clear(struct my_reader *reader) {
    free(reader->bytes);
    *reader = (struct my_reader){0};
}

static uint32_t read_little(const uint8_t *bytes, size_t size) {
    uint32_t number = 0;
    for (size_t i = 0; i < size; i++)
        number |= (uint32_t)bytes[i] << (8 * i);
    return number;
}

static void write_little(char *bytes, uint32_t number, size_t size) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(number >> (8 * i));
}

enum my_next my_reader_next(struct my_reader *reader, struct my_packet *ret_packet) {
    const uint8_t *at = (const uint8_t *)reader->bytes + reader->at;
    size_t left = reader->size - reader->at;
    if (left < MY_HEADER)
        return MY_NONE;
    size_t size = read_little(at, 3);
    if (size == PACKET_MAX)
        return MY_BAD_PACKET;
    if (left - MY_HEADER < size)
        return MY_NONE;
    *ret_packet = (struct my_packet){at + MY_HEADER, size, at[3]};
    reader->at += MY_HEADER + size;
    return MY_PACKET;
}

void my_write_header(char ret_bytes[MY_HEADER], size_t size, uint8_t number) {
    write_little(ret_bytes, (uint32_t)size, 3);
    ret_bytes[3] = (char)number;
}

/* ---- What is in a packet ---- */

struct cursor {
    const uint8_t *at, *end;
    bool bad; /* it went beyond the end */
};

static struct cursor start_of(const struct my_packet *packet) {
    return (struct cursor){packet->bytes, packet->bytes + packet->size, false};
}

/* The next `size` bytes; NULL: there are not that many. */
static const uint8_t *take(struct cursor *c, uint64_t size) {
    if (c->bad || (uint64_t)(c->end - c->at) < size) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *bytes = c->at;
    c->at += size;
    return bytes;
}

static uint32_t take_number(struct cursor *c, size_t size) {
    const uint8_t *bytes = take(c, size);
    return bytes ? read_little(bytes, size) : 0;
}

/* A number whose first byte says how long it is. */
static uint64_t take_length(struct cursor *c) {
    uint32_t first = take_number(c, 1);
    switch (first) {
    case 0xfc:
        return take_number(c, 2);
    case 0xfd:
        return take_number(c, 3);
    case 0xfe: {
        uint64_t low = take_number(c, 4);
        return low | (uint64_t)take_number(c, 4) << 32;
    }
    default:
        return first;
    }
}

/* A text that ends with a 0, or with the packet. */
static void take_text(struct cursor *c, char *ret, size_t room) {
    size_t left = (size_t)(c->end - c->at), size = strnlen((const char *)c->at, left);
    snprintf(ret, room, "%.*s", (int)size, (const char *)c->at);
    c->at += size < left ? size + 1 : size;
}

/* ---- The login ---- */

static void take_nonce(struct cursor *c, uint8_t *nonce, size_t size) {
    const uint8_t *bytes = take(c, size);
    if (bytes)
        memcpy(nonce, bytes, size);
}

bool my_read_greeting(const struct my_packet *packet, struct my_greeting *ret) {
    struct cursor c = start_of(packet);
    char version[sizeof(ret->version) + 6];
    *ret = (struct my_greeting){.plugin = "mysql_native_password"};
    if (take_number(&c, 1) != 10)
        return false;
    take_text(&c, version, sizeof(version));
    ret->is_mariadb = strstr(version, "MariaDB");
    bool is_prefixed = strncmp(version, "5.5.5-", 6) == 0;
    snprintf(ret->version, sizeof(ret->version), "%s", version + (is_prefixed ? 6 : 0));
    ret->session = take_number(&c, 4);
    take_nonce(&c, ret->nonce, 8);
    take(&c, 1);
    ret->capabilities = take_number(&c, 2);
    take(&c, 3); /* character set and status */
    ret->capabilities |= take_number(&c, 2) << 16;
    take(&c, 11); /* the size of the nonce, and unused bytes */
    take_nonce(&c, ret->nonce + 8, MY_NONCE - 8);
    if (c.bad)
        return false;
    if (ret->capabilities & CLIENT_PLUGIN_AUTH) {
        take(&c, 1);
        take_text(&c, ret->plugin, sizeof(ret->plugin));
    }
    return ret->capabilities & CLIENT_PROTOCOL_41;
}

bool my_read_switch(const struct my_packet *packet, struct my_greeting *greeting) {
    struct cursor c = start_of(packet);
    if (take_number(&c, 1) != SERVER_SPOKE_SWITCH || packet->size < 2)
        return false;
    take_text(&c, greeting->plugin, sizeof(greeting->plugin));
    size_t left = (size_t)(c.end - c.at);
    memset(greeting->nonce, 0, MY_NONCE);
    memcpy(greeting->nonce, c.at, left < MY_NONCE ? left : MY_NONCE);
    return true;
}

bool my_offers_tls(const struct my_greeting *greeting) {
    return greeting->capabilities & CLIENT_SSL;
}

uint32_t my_capabilities(const struct my_greeting *greeting, bool tls) {
    uint32_t wanted = CLIENT_LONG_PASSWORD | CLIENT_CONNECT_WITH_DB | CLIENT_PROTOCOL_41 |
                      CLIENT_TRANSACTIONS | CLIENT_SECURE_CONNECTION | CLIENT_MULTI_STATEMENTS |
                      CLIENT_MULTI_RESULTS | CLIENT_PLUGIN_AUTH | (tls ? CLIENT_SSL : 0);
    /* MariaDB does not offer CLIENT_LONG_PASSWORD: there the bit has another meaning. */
    return wanted & (greeting->capabilities | CLIENT_LONG_PASSWORD);
}

static void write_opening(char *bytes, uint32_t capabilities) {
    memset(bytes, 0, 32);
    write_little(bytes, capabilities, 4);
    write_little(bytes + 4, PACKET_MAX, 4);
    bytes[8] = CHARSET_UTF8MB4;
}

void my_write_tls_request(uint32_t capabilities, uint8_t number,
                          uint8_t ret_bytes[MY_TLS_REQUEST_SIZE]) {
    my_write_header((char *)ret_bytes, MY_TLS_REQUEST_SIZE - MY_HEADER, number);
    write_opening((char *)ret_bytes + MY_HEADER, capabilities);
}

/* SHA1(password) xor SHA1(nonce, SHA1(SHA1(password))) */
static int prove_native(const char *password, const uint8_t *nonce, uint8_t *ret) {
    uint8_t once[SHA_DIGEST_LENGTH], salted[MY_NONCE + SHA_DIGEST_LENGTH];
    SHA1((const uint8_t *)password, strlen(password), once);
    memcpy(salted, nonce, MY_NONCE);
    SHA1(once, sizeof(once), salted + MY_NONCE);
    SHA1(salted, sizeof(salted), ret);
    for (size_t i = 0; i < sizeof(once); i++)
        ret[i] ^= once[i];
    return SHA_DIGEST_LENGTH;
}

/* SHA256(password) xor SHA256(SHA256(SHA256(password)), nonce) */
static int prove_sha2(const char *password, const uint8_t *nonce, uint8_t *ret) {
    uint8_t once[SHA256_DIGEST_LENGTH], salted[SHA256_DIGEST_LENGTH + MY_NONCE];
    SHA256((const uint8_t *)password, strlen(password), once);
    SHA256(once, sizeof(once), salted);
    memcpy(salted + SHA256_DIGEST_LENGTH, nonce, MY_NONCE);
    SHA256(salted, sizeof(salted), ret);
    for (size_t i = 0; i < sizeof(once); i++)
        ret[i] ^= once[i];
    return SHA256_DIGEST_LENGTH;
}

int my_prove(const char *plugin, const char *password, const uint8_t nonce[MY_NONCE],
             uint8_t ret_proof[MY_PROOF_MAX]) {
    bool is_native = strcmp(plugin, "mysql_native_password") == 0;
    bool is_sha2 = strcmp(plugin, "caching_sha2_password") == 0;
    bool is_socket = strcmp(plugin, "auth_socket") == 0 || strcmp(plugin, "unix_socket") == 0;
    if (!is_native && !is_sha2 && !is_socket)
        return -1;
    if (!password || !*password || is_socket)
        return 0;
    return is_native ? prove_native(password, nonce, ret_proof)
                     : prove_sha2(password, nonce, ret_proof);
}

char *my_write_login(const struct my_greeting *greeting, uint32_t capabilities, uint8_t number,
                     const char *user, const char *database, const uint8_t *proof,
                     size_t proof_size, size_t *ret_size) {
    size_t user_size = strlen(user) + 1, database_size = strlen(database) + 1;
    size_t plugin_size = capabilities & CLIENT_PLUGIN_AUTH ? strlen(greeting->plugin) + 1 : 0;
    size_t size = 32 + user_size + 1 + proof_size + database_size + plugin_size;
    char *packet = malloc(MY_HEADER + size);
    if (!packet)
        return NULL;
    char *at = packet + MY_HEADER;
    my_write_header(packet, size, number);
    write_opening(at, capabilities);
    at = (char *)memcpy(at + 32, user, user_size) + user_size;
    *at++ = (char)proof_size;
    at = (char *)memcpy(at, proof, proof_size) + proof_size;
    at = (char *)memcpy(at, database, database_size) + database_size;
    memcpy(at, greeting->plugin, plugin_size);
    *ret_size = MY_HEADER + size;
    return packet;
}

/* ---- Results ---- */

enum { NO_VALUE = -1 };

void my_result_clear(struct my_result *result) {
    free(result->cells);
    free(result->bytes);
    *result = (struct my_result){0};
}

static size_t cell(const struct my_result *result, size_t row, unsigned column) {
    return result->cells[row * result->columns + column];
}

bool my_is_null(const struct my_result *result, size_t row, unsigned column) {
    return cell(result, row, column) == (size_t)NO_VALUE;
}

const char *my_value(const struct my_result *result, size_t row, unsigned column) {
    return my_is_null(result, row, column) ? "" : result->bytes + cell(result, row, column);
}

int64_t my_number(const struct my_result *result, size_t row, unsigned column) {
    return strtoll(my_value(result, row, column), NULL, 10);
}

void my_read_error(const struct my_packet *packet, struct my_result *ret) {
    struct cursor c = start_of(packet);
    take(&c, 1);
    ret->error = take_number(&c, 2);
    if (c.at < c.end && *c.at == '#')
        take(&c, 6); /* the SQLSTATE */
    take_text(&c, ret->text, sizeof(ret->text));
    if (!ret->error)
        ret->error = UINT16_MAX; /* it makes no sense, but is an error */
}

static bool add_cell(struct my_result *result, size_t at) {
    if (result->cell_count == result->cell_room) {
        size_t room = result->cell_room ? 2 * result->cell_room : 16;
        size_t *cells = realloc(result->cells, room * sizeof(*cells));
        if (!cells)
            return false;
        result->cells = cells;
        result->cell_room = room;
    }
    result->cells[result->cell_count++] = at;
    return true;
}

static bool add_value(struct my_result *result, const uint8_t *bytes, size_t size) {
    if (!make_room(&result->bytes, &result->room, result->size + size + 1) ||
        !add_cell(result, result->size))
        return false;
    memcpy(result->bytes + result->size, bytes, size);
    result->size += size;
    result->bytes[result->size++] = 0;
    return true;
}

static enum my_step add_row(struct my_result *result, const struct my_packet *packet) {
    struct cursor c = start_of(packet);
    for (unsigned i = 0; i < result->columns; i++) {
        if (c.at < c.end && *c.at == NULL_VALUE) {
            c.at++;
            if (!add_cell(result, (size_t)NO_VALUE))
                return MY_NO_MEMORY;
            continue;
        }
        uint64_t size = take_length(&c);
        const uint8_t *bytes = take(&c, size);
        if (!bytes)
            return MY_BROKEN;
        if (!add_value(result, bytes, (size_t)size))
            return MY_NO_MEMORY;
    }
    result->rows++;
    return MY_GOES_ON;
}

static enum my_step begin_result(struct my_answer *answer, const struct my_packet *packet) {
    struct cursor c = start_of(packet);
    if (packet->bytes[0] == SERVER_SPOKE_OK) {
        take(&c, 1);
        take_length(&c);
        take_length(&c);
        uint32_t status = take_number(&c, 2);
        return c.bad ? MY_BROKEN : status & MORE_RESULTS ? MY_GOES_ON : MY_ENDED;
    }
    uint64_t columns = take_length(&c);
    if (packet->bytes[0] == SERVER_WANTS_A_FILE || c.bad || !columns || columns > 100)
        return MY_BROKEN;
    my_result_clear(&answer->result);
    answer->result.columns = (unsigned)columns;
    answer->columns_left = columns + 1; /* and what ends them */
    answer->at = MY_AT_COLUMNS;
    return MY_GOES_ON;
}

enum my_step my_answer_take(struct my_answer *answer, const struct my_packet *packet) {
    if (!packet->size)
        return MY_BROKEN;
    if (packet->bytes[0] == SERVER_SPOKE_ERROR) {
        my_result_clear(&answer->result);
        my_read_error(packet, &answer->result);
        return MY_ENDED;
    }
    if (answer->at == MY_AT_START)
        return begin_result(answer, packet);
    if (answer->at == MY_AT_COLUMNS) {
        if (--answer->columns_left == 0)
            answer->at = MY_AT_ROWS;
        return MY_GOES_ON;
    }
    if (packet->bytes[0] != SERVER_SPOKE_EOF || packet->size > 8)
        return add_row(&answer->result, packet);
    answer->at = MY_AT_START;
    struct cursor c = start_of(packet);
    take(&c, 3);
    return take_number(&c, 2) & MORE_RESULTS ? MY_GOES_ON : MY_ENDED;
}
