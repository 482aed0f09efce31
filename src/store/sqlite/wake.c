/* Notifications for waiters and holders, and watches on processes.
 *
 * Beside the database is a folder of sockets, FILE-wake/, one for each client that waits for a lock
 * or has held one for some time, named after the client's id in hex. A client that hands on or
 * breaks a lock sends a datagram there after the commit: WAKE or GONE and the number of the
 * attempt. Datagrams are hints. If one is lost, the waiter asks again anyway, only later; GONE is
 * checked against the database. The kernel keeps about ten of them for a client that does not read
 * them. Those that do not fit are sent together a little later, until the waiter must have asked
 * anyway. Sockets are addressed through /proc/self/fd, since the address of a socket is too short
 * for most paths. A client whose datagram is refused, because the socket's owner died, removes the
 * socket's file.
 *
 * A socket is a file. Creating one costs an eighth of what `holdfast run x true` takes on ext4. A
 * waiter needs its socket before its place in the queue is committed. A holder is notified only of
 * a break, so it creates its socket LISTEN_AFTER_US later, and then checks that its hold still
 * exists.
 *
 * When a process is killed, it sends no datagram. So each waiter watches the process just before
 * it: that of the waiter before it in the queue or, at the head, those of the holders. When that
 * process ends, the waiter asks again, finds it dead, and removes its claims. */
#include "store/sqlite/sqlite.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    NOTES_IN_MESSAGE = 60,
    MESSAGES_AT_ONCE = 64,
    SWEPT_AT_ONCE = 64,
    NAME_SIZE = 33,
    RESEND_US = 10000,
    LISTEN_AFTER_US = 100000,
};

static const char magic[8] = "hfwake1";

struct message {
    char magic[8];
    struct {
        uint64_t kind, seq;
    } notes[NOTES_IN_MESSAGE];
};

static void format_name(const uint8_t id[16], char ret_name[NAME_SIZE]) {
    for (int i = 0; i < 16; i++)
        snprintf(ret_name + i * 2, 3, "%02x", id[i]);
}

static struct sockaddr_un address_of(const struct session *s, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", s->wake_folder,
             name);
    return address;
}

/* ---- The socket ---- */

/* Opens the folder of the sockets, which has the same permissions as the database. */
static bool open_folder(struct session *s) {
    if (s->wake_folder >= 0)
        return true;
    const char *slash = strrchr(s->file.path, '/');
    char name[300];
    if (snprintf(name, sizeof(name), "%s-wake", slash + 1) >= (int)sizeof(name))
        return false;
    mode_t mode = s->file.mode & 020 ? 0770 : 0700;
    bool is_new = mkdirat(s->file.folder, name, 0700) == 0;
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    s->wake_folder = openat(s->file.folder, name, flags);
    if (s->wake_folder >= 0 && is_new)
        fchmod(s->wake_folder, mode);
    return s->wake_folder >= 0;
}

static bool open_socket(struct session *s) {
    if (!s->wake_failed && s->wake_fd < 0 && open_folder(s))
        s->wake_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->wake_failed = s->wake_fd < 0;
    return !s->wake_failed;
}

static bool is_refused(int fd, const struct sockaddr_un *address) {
    return connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 &&
           errno == ECONNREFUSED;
}

static size_t count_entries(DIR *folder) {
    size_t count = 0;
    while (readdir(folder))
        count++;
    rewinddir(folder);
    return count;
}

/* Removes sockets of dead clients. It starts at a random one and does not check all. */
static void sweep_folder(struct session *s) {
    int copy = openat(s->wake_folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    uint32_t skip = 0;
    if (folder && fd >= 0) {
        size_t count = count_entries(folder);
        world_random(s->host->world, &skip, sizeof(skip));
        skip = count > SWEPT_AT_ONCE ? skip % (uint32_t)(count - SWEPT_AT_ONCE) : 0;
        struct dirent *entry;
        for (uint32_t i = 0; (entry = readdir(folder)) && i < skip + SWEPT_AT_ONCE; i++) {
            if (i < skip || strlen(entry->d_name) != NAME_SIZE - 1)
                continue;
            struct sockaddr_un address = address_of(s, entry->d_name);
            if (is_refused(fd, &address))
                unlinkat(s->wake_folder, entry->d_name, 0);
        }
    }
    if (fd >= 0)
        close(fd);
    if (folder)
        closedir(folder);
    else if (copy >= 0)
        close(copy);
}

bool wake_count(struct session *s, size_t *ret_living, size_t *ret_dead) {
    enum { LOOKED_AT = 512 };
    *ret_living = *ret_dead = 0;
    int copy =
        open_folder(s) ? openat(s->wake_folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool usable = folder && fd >= 0 && faccessat(copy, ".", W_OK | X_OK, AT_EACCESS) == 0;
    struct dirent *entry;
    for (int i = 0; usable && i < LOOKED_AT && (entry = readdir(folder)); i++) {
        if (strlen(entry->d_name) != NAME_SIZE - 1)
            continue;
        struct sockaddr_un address = address_of(s, entry->d_name);
        ++*(is_refused(fd, &address) ? ret_dead : ret_living);
    }
    if (fd >= 0)
        close(fd);
    if (folder)
        closedir(folder);
    else if (copy >= 0)
        close(copy);
    return usable;
}

static void on_note(struct session *s, uint64_t kind, uint64_t seq) {
    if (kind == NOTE_WAKE)
        s->host->wake(s->host, seq);
    else if (kind == NOTE_GONE && !claims_is_held(s, seq))
        s->host->gone(s->host, seq);
    else if (kind == NOTE_CHANGED)
        changes_hint(s);
}

static void hear_message(struct session *s, const struct message *message, size_t size) {
    size_t each = sizeof(message->notes[0]), head = sizeof(message->magic);
    if (size < head || (size - head) % each || memcmp(message->magic, magic, head) != 0)
        return; /* not one of ours */
    for (size_t i = 0; i < (size - head) / each; i++)
        on_note(s, message->notes[i].kind, message->notes[i].seq);
}

static void socket_ready(struct world_watch *watch, uint32_t events) {
    (void)events;
    struct session *s = container_of(watch, struct session, wake_watch);
    struct message message;
    ssize_t size = 0;
    session_enter();
    for (int i = 0; i < MESSAGES_AT_ONCE && size >= 0; i++) {
        size = recv(s->wake_fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
        if (size >= 0 && (size_t)size <= sizeof(message))
            hear_message(s, &message, (size_t)size);
    }
    session_leave();
}

static bool bind_socket(struct session *s) {
    char name[NAME_SIZE];
    format_name(s->host->identity.id, name);
    struct sockaddr_un address = address_of(s, name);
    if (bind(s->wake_fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return false;
    bool is_group = s->file.mode & 020;
    s->wake_watch = (struct world_watch){.fd = s->wake_fd, .events = EPOLLIN, .fn = socket_ready};
    s->wake_bound = (!is_group || fchmodat(s->wake_folder, name, 0660, 0) == 0) &&
                    world_watch(s->host->world, &s->wake_watch) == HF_OK;
    if (!s->wake_bound)
        unlinkat(s->wake_folder, name, 0);
    return s->wake_bound;
}

void wake_listen(struct session *s) {
    if (s->wake_bound || !open_socket(s))
        return;
    sweep_folder(s);
    s->wake_failed = !bind_socket(s);
}

/* Also reports the hold as gone if it ended before we could be notified. */
static void listen_late(struct session *s) {
    uint64_t seq = s->unheard;
    s->unheard = 0;
    wake_listen(s);
    if (seq && !claims_is_held(s, seq))
        s->host->gone(s->host, seq);
}

static void listen_now(struct world_timer *timer) {
    session_enter();
    listen_late(container_of(timer, struct session, listen_timer));
    session_leave();
}

void wake_granted(struct session *s, uint64_t seq) {
    struct world *world = s->host->world;
    if (s->wake_bound || s->wake_failed)
        return;
    if (!s->listen_added)
        s->listen_added = world_timer_add(world, &s->listen_timer, listen_now) == HF_OK;
    if (!s->listen_added || (s->unheard && s->unheard != seq)) {
        listen_late(s);
        return;
    }
    s->unheard = seq;
    if (!s->listen_timer.node.place)
        world_timer_set(world, &s->listen_timer, world_now_us(world) + LISTEN_AFTER_US);
}

void wake_released(struct session *s, uint64_t seq) {
    if (s->unheard == seq)
        s->unheard = 0;
}

/* ---- Notes ---- */

void wake_note(struct session *s, const struct claim *claim, enum note_kind kind) {
    if (s->note_count == s->note_room) {
        size_t room = s->note_room ? s->note_room * 2 : 8;
        struct note *notes = realloc(s->notes, room * sizeof(*notes));
        if (!notes)
            return; /* one hint less */
        s->notes = notes;
        s->note_room = room;
    }
    struct note *note = &s->notes[s->note_count++];
    *note = (struct note){.seq = claim->seq, .kind = kind};
    memcpy(note->client, claim->client, sizeof(note->client));
}

void wake_forget(struct session *s) {
    s->note_count = s->unsent_count;
}

/* False if there was no room for it. */
static bool send_message(struct session *s, const uint8_t id[16], const struct message *message,
                         size_t count) {
    char name[NAME_SIZE];
    if (!open_socket(s))
        return true;
    format_name(id, name);
    struct sockaddr_un address = address_of(s, name);
    size_t size = sizeof(message->magic) + count * sizeof(message->notes[0]);
    if (sendto(s->wake_fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
               sizeof(address)) >= 0)
        return true;
    if (errno == ECONNREFUSED)
        unlinkat(s->wake_folder, name, 0); /* ids are not used twice: its owner is dead */
    return errno != EAGAIN;
}

static bool deliver(struct session *s, const uint8_t id[16], const struct message *message,
                    size_t count) {
    if (memcmp(id, s->host->identity.id, sizeof(s->host->identity.id)) != 0)
        return send_message(s, id, message, count);
    for (size_t i = 0; i < count; i++)
        on_note(s, message->notes[i].kind, message->notes[i].seq);
    return true;
}

/* Puts the notes that did not fit back at `at`, unless they are too old. Returns how many. Watchers
 * need no second hint: their socket is already full of hints, and they also look without one. */
static size_t keep_notes(struct session *s, size_t at, struct note *notes, size_t count) {
    int64_t now_us = world_now_us(s->host->world);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!notes[i].until_us)
            notes[i].until_us = now_us + s->host->wait_lease_us / 3;
        if (now_us < notes[i].until_us && notes[i].kind != NOTE_CHANGED)
            notes[kept++] = notes[i];
    }
    memmove(s->notes + at + kept, s->notes + at, (s->note_count - at) * sizeof(*s->notes));
    memcpy(s->notes + at, notes, kept * sizeof(*s->notes));
    s->note_count += kept;
    return kept;
}

/* Sends the note at `first` and the later ones for the same client, and removes them. Those that
 * must be sent again are put back at `first`; returns how many. */
static size_t send_from(struct session *s, size_t first) {
    struct message message;
    struct note sent[NOTES_IN_MESSAGE];
    memcpy(message.magic, magic, sizeof(magic));
    const struct note begin = s->notes[first];
    size_t count = 0, others = first;
    for (size_t i = first; i < s->note_count; i++) {
        struct note *note = &s->notes[i];
        if (memcmp(note->client, begin.client, sizeof(begin.client)) != 0 ||
            count == NOTES_IN_MESSAGE) {
            s->notes[others++] = *note;
            continue;
        }
        message.notes[count].kind = note->kind;
        message.notes[count].seq = note->seq;
        sent[count++] = *note;
    }
    s->note_count = others;
    return deliver(s, begin.client, &message, count) ? 0 : keep_notes(s, first, sent, count);
}

static void resend(struct world_timer *timer) {
    session_enter();
    wake_send(container_of(timer, struct session, resend_timer));
    session_leave();
}

void wake_send(struct session *s) {
    size_t unsent = 0;
    while (unsent < s->note_count)
        unsent += send_from(s, unsent);
    s->unsent_count = unsent;
    if (!unsent)
        return;
    struct world *world = s->host->world;
    if (!s->resend_added)
        s->resend_added = world_timer_add(world, &s->resend_timer, resend) == HF_OK;
    if (s->resend_added && !s->resend_timer.node.place)
        world_timer_set(world, &s->resend_timer, world_now_us(world) + RESEND_US);
}

/* ---- Watches ---- */

static void end_watch(struct watch *watch) {
    world_unwatch(watch->session->host->world, &watch->world);
    close(watch->world.fd);
    watch->seq = 0;
    watch->session->watch_count--;
}

static void process_ended(struct world_watch *world, uint32_t events) {
    (void)events;
    struct watch *watch = container_of(world, struct watch, world);
    struct session *s = watch->session;
    uint64_t seq = watch->seq;
    end_watch(watch);
    s->host->wake(s->host, seq);
}

static bool is_in_front(const struct session *s, const struct process *process) {
    for (size_t i = 0; i < s->in_front_count; i++) {
        if (process_is_same(&s->in_front[i], process))
            return true;
    }
    return false;
}

static bool is_watched(const struct session *s, uint64_t seq, const struct process *process) {
    for (size_t i = 0; i < WATCHES_MAX && s->watch_count; i++) {
        if (s->watches[i].seq == seq && process_is_same(&s->watches[i].process, process))
            return true;
    }
    return false;
}

static struct watch *free_watch(struct session *s) {
    for (size_t i = 0; i < WATCHES_MAX; i++) {
        if (!s->watches[i].seq)
            return &s->watches[i];
    }
    return NULL;
}

static void begin_watch(struct session *s, uint64_t seq, const struct process *process) {
    struct watch *watch = free_watch(s);
    int fd = watch ? process_open(&s->facts, process) : -1;
    if (fd < 0) {
        if (watch && process_is_dead(&s->facts, process))
            s->host->wake(s->host, seq); /* it ended just now */
        return;
    }
    *watch = (struct watch){
        .world = {.fd = fd, .events = EPOLLIN, .fn = process_ended},
        .session = s,
        .process = *process,
        .seq = seq,
    };
    if (world_watch(s->host->world, &watch->world) < 0) {
        close(fd);
        watch->seq = 0;
        return;
    }
    s->watch_count++;
}

void wake_watch(struct session *s, uint64_t seq) {
    for (size_t i = 0; i < WATCHES_MAX && s->watch_count; i++) {
        if (s->watches[i].seq == seq && !is_in_front(s, &s->watches[i].process))
            end_watch(&s->watches[i]);
    }
    for (size_t i = 0; i < s->in_front_count; i++) {
        if (!is_watched(s, seq, &s->in_front[i]))
            begin_watch(s, seq, &s->in_front[i]);
    }
}

void wake_unwatch(struct session *s, uint64_t seq) {
    s->in_front_count = 0;
    if (s->watch_count)
        wake_watch(s, seq);
}

/* ---- The end ---- */

static void close_watches(struct session *s, bool inherited) {
    for (size_t i = 0; i < WATCHES_MAX; i++) {
        if (s->watches[i].seq && !inherited)
            end_watch(&s->watches[i]);
        else if (s->watches[i].seq)
            close(s->watches[i].world.fd);
        s->watches[i].seq = 0;
    }
    s->watch_count = 0;
}

void wake_close(struct session *s, bool inherited) {
    close_watches(s, inherited);
    if (s->wake_bound && !inherited) {
        char name[NAME_SIZE];
        format_name(s->host->identity.id, name);
        world_unwatch(s->host->world, &s->wake_watch);
        unlinkat(s->wake_folder, name, 0);
    }
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    if (s->wake_folder >= 0)
        close(s->wake_folder);
    s->wake_fd = s->wake_folder = -1;
    s->wake_bound = s->wake_failed = false;
    if (s->resend_added && !inherited)
        world_timer_drop(s->host->world, &s->resend_timer);
    if (s->listen_added && !inherited)
        world_timer_drop(s->host->world, &s->listen_timer);
    s->resend_added = s->listen_added = false;
    s->unheard = 0;
    free(s->notes);
    s->notes = NULL;
    s->note_count = s->note_room = s->unsent_count = 0;
}
