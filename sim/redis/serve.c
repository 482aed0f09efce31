/* Serves the model to a program, on a loopback port and by the real clock:
 *
 *     serve -- program arguments
 *
 * {url} in the arguments becomes the server's URL. The exit status is the program's. So
 * everything that works with a real server can be run with the model. One loop serves all
 * clients in turn, as in Redis. */
#include "sim/redis/bytes.h"
#include "sim/redis/redis.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MOST = 1000, LISTENER = 0, CHILDREN, FIRST_CLIENT };

struct client {
    int fd;
    struct model_connection *connection;
    struct text output; /* that the client has not taken yet */
    bool closing;
};

struct server {
    struct model_redis *model;
    int listener, children;
    struct client *clients[CLIENTS_MOST];
    size_t count;
};

static void die(const char *what) __attribute__((noreturn));
static void die(const char *what) {
    perror(what);
    exit(2);
}

/* ---- Clients ---- */

static void client_said(void *context, const char *bytes, size_t size) {
    struct client *client = context;
    text_add(&client->output, bytes, size);
}

static void client_write(struct client *client) {
    struct text *output = &client->output;
    if (!output->size)
        return;
    ssize_t sent = send(client->fd, output->bytes, output->size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
        client->closing |= errno != EAGAIN && errno != EINTR;
        return;
    }
    output->size -= (size_t)sent;
    memmove(output->bytes, output->bytes + sent, output->size);
}

static void client_read(struct client *client) {
    char bytes[65536];
    ssize_t got = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        client->closing |= !model_feed(client->connection, bytes, (size_t)got);
        return;
    }
    client->closing |= got == 0 || (errno != EAGAIN && errno != EINTR);
}

static void client_free(struct client *client) {
    model_disconnect(client->connection);
    close(client->fd);
    text_free(&client->output);
    free(client);
}

static void accept_client(struct server *server) {
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (server->count == CLIENTS_MOST) {
        close(fd);
        return;
    }
    struct client *client = bytes_allocate(NULL, sizeof(*client));
    *client = (struct client){.fd = fd};
    client->connection = model_connect(server->model, client);
    server->clients[server->count++] = client;
}

/* ---- The loop ---- */

static void wait_for_something(const struct server *server, struct pollfd *ret_polls) {
    ret_polls[LISTENER] = (struct pollfd){server->listener, POLLIN, 0};
    ret_polls[CHILDREN] = (struct pollfd){server->children, POLLIN, 0};
    for (size_t i = 0; i < server->count; i++) {
        const struct client *client = server->clients[i];
        short events = client->output.size ? POLLIN | POLLOUT : POLLIN;
        ret_polls[FIRST_CLIENT + i] = (struct pollfd){client->fd, events, 0};
    }
    if (poll(ret_polls, FIRST_CLIENT + server->count, -1) < 0 && errno != EINTR)
        die("poll");
}

static void serve_clients(struct server *server, const struct pollfd *polls) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    model_set_time(server->model, now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000);
    size_t polled = server->count, kept = 0;
    for (size_t i = 0; i < polled; i++)
        if (polls[FIRST_CLIENT + i].revents)
            client_read(server->clients[i]);
    for (size_t i = 0; i < polled; i++)
        client_write(server->clients[i]);
    for (size_t i = 0; i < polled; i++) {
        if (server->clients[i]->closing)
            client_free(server->clients[i]);
        else
            server->clients[kept++] = server->clients[i];
    }
    server->count = kept;
}

/* Returns the program's exit status, as a shell shows it. */
static int serve_until_exit(struct server *server, pid_t program) {
    static struct pollfd polls[FIRST_CLIENT + CLIENTS_MOST];
    for (;;) {
        int status;
        wait_for_something(server, polls);
        serve_clients(server, polls);
        if (polls[LISTENER].revents)
            accept_client(server);
        if (waitpid(program, &status, WNOHANG) == program)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

/* ---- Starting ---- */

static int listen_on_loopback(unsigned *ret_port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        die("a loopback port");
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static char *with_url(const char *word, const char *url) {
    const char *place = strstr(word, "{url}");
    struct text text = {NULL, 0, 0};
    if (place)
        text_format(&text, "%.*s%s%s", (int)(place - word), word, url, place + strlen("{url}"));
    else
        text_format(&text, "%s", word);
    return text.bytes;
}

/* The end of the child is an event like the others, so it wakes the loop. */
static pid_t start_program(struct server *server, char **words, const char *url) {
    sigset_t children;
    pid_t parent = getpid();
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    server->children = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (server->children < 0)
        die("signalfd");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(2);
    sigprocmask(SIG_UNBLOCK, &children, NULL);
    for (char **word = words; *word; word++)
        *word = with_url(*word, url);
    assert(words[0]);
    execvp(words[0], words);
    die("cannot run the program");
}

int main(int argc, char **argv) {
    static struct server server;
    static const struct model_config config = {.output = client_said};
    char url[64];
    unsigned port;
    int first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1;
    if (first >= argc) {
        fprintf(stderr, "usage: serve -- program arguments\n");
        return 2;
    }
    server.listener = listen_on_loopback(&port);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u/0", port);
    pid_t program = start_program(&server, argv + first, url);
    server.model = model_new(&config);
    int status = serve_until_exit(&server, program);
    while (server.count)
        client_free(server.clients[--server.count]);
    model_free(server.model);
    return status;
}
