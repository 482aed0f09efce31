/* Lua scripts, as Redis 7.0 runs them.
 *
 * Design notes. A model has one Lua state for its whole life. A script is compiled when its
 * text comes for the first time, and its function stays in the registry. Whether the server
 * knows the script is a flag, which SCRIPT FLUSH, a restart and model_reset clear. A script
 * cannot leave anything behind in the state: Redis patches Lua to make the tables of globals
 * and of libraries read-only; here scripts see empty tables in front of them, which pass reads
 * on and refuse writes. So pairs(_G) finds nothing, but no script should need it.
 *
 * A script that uses one of these fails, as they are missing: math.random, coroutines, load,
 * rawset, cjson and the other extra libraries, redis.log, redis.setresp; doubles, maps and
 * sets as replies.
 *
 * An error in Lua leaves C functions by longjmp: so all memory belongs to Lua or to the model. */
#include "sim/redis/model.h"
#include "sim/redis/pool.h"

#include <assert.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct script {
    char sha1[SHA1_SIZE + 1];
    struct slice text;
    int function; /* in the registry */
    bool known;
};

struct scripts {
    struct model_redis *redis;
    struct pool *pool;
    lua_State *lua;
    int globals, error_handler; /* in the registry */
    struct script *items;       /* sorted by sha1 */
    size_t count, room;
    struct slice *words; /* of a call by a script */
    size_t words_room;
    struct text answer; /* to it */
    bool wrote;         /* the script that runs has called a command that writes */
};

/* ---- Errors, which are tables with the field err ---- */

/* Pushes an error that a client would get, without the '-': its first word is the code. */
static void push_error(lua_State *lua, const char *error, size_t size) {
    lua_createtable(lua, 0, 1);
    if (memchr(error, ' ', size)) {
        lua_pushlstring(lua, error, size);
    } else {
        lua_pushliteral(lua, "ERR ");
        lua_pushlstring(lua, error, size);
        lua_concat(lua, 2);
    }
    lua_setfield(lua, -2, "err");
}

static int wrong_arguments(lua_State *lua, const char *error) {
    push_error(lua, error, strlen(error));
    return 1;
}

/* ---- From replies to Lua ---- */

/* The replies come from the model, and are well-formed. Returns what follows the reply. */
static const char *push_reply(lua_State *lua, const char *at) {
    const char *end = strchr(at, '\r'), *next = end + 2;
    long long number = strtoll(at + 1, NULL, 10);
    luaL_checkstack(lua, 4, NULL);
    switch (at[0]) {
    case '+':
        lua_createtable(lua, 0, 1);
        lua_pushlstring(lua, at + 1, (size_t)(end - at - 1));
        lua_setfield(lua, -2, "ok");
        break;
    case '-':
        push_error(lua, at + 1, (size_t)(end - at - 1));
        lua_pushboolean(lua, 1);
        lua_setfield(lua, -2, "ignore_error_stats_update");
        break;
    case ':':
        lua_pushnumber(lua, (lua_Number)number);
        break;
    case '$':
        if (number < 0) {
            lua_pushboolean(lua, 0);
        } else {
            lua_pushlstring(lua, next, (size_t)number);
            next += number + 2;
        }
        break;
    default:
        assert(at[0] == '*');
        lua_createtable(lua, (int)number, 0);
        for (int i = 1; i <= number; i++) {
            next = push_reply(lua, next);
            lua_rawseti(lua, -2, i);
        }
    }
    return next;
}

/* ---- From Lua to replies ---- */

static bool get_text(lua_State *lua, const char *field) {
    lua_pushstring(lua, field);
    lua_rawget(lua, -2);
    if (lua_type(lua, -1) == LUA_TSTRING)
        return true;
    lua_pop(lua, 1);
    return false;
}

static void pop_answer(lua_State *lua, struct text *answer);

/* The items up to the first nil. */
static void answer_items(lua_State *lua, struct text *answer) {
    size_t count = 0;
    for (;; count++) {
        lua_rawgeti(lua, -1, (int)count + 1);
        bool last = lua_isnil(lua, -1);
        lua_pop(lua, 1);
        if (last)
            break;
    }
    answer_array(answer, count);
    for (size_t i = 1; i <= count; i++) {
        lua_rawgeti(lua, -1, (int)i);
        pop_answer(lua, answer);
    }
}

static void answer_table(lua_State *lua, struct text *answer) {
    if (get_text(lua, "err")) {
        answer_error(answer, "%s", lua_tostring(lua, -1));
        lua_pop(lua, 1);
    } else if (get_text(lua, "ok")) {
        size_t start = answer->size;
        answer_status(answer, lua_tostring(lua, -1));
        for (size_t i = start; i < answer->size - 2; i++)
            if (answer->bytes[i] == '\r' || answer->bytes[i] == '\n')
                answer->bytes[i] = ' ';
        lua_pop(lua, 1);
    } else {
        answer_items(lua, answer);
    }
}

/* As C converts it on common machines: out of range, it is the least integer. */
static int64_t truncate_number(lua_Number number) {
    return number >= -9223372036854775808.0 && number < 9223372036854775808.0 ? (int64_t)number
                                                                              : INT64_MIN;
}

static void pop_answer(lua_State *lua, struct text *answer) {
    struct slice bytes;
    luaL_checkstack(lua, 4, NULL);
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        bytes.bytes = lua_tolstring(lua, -1, &bytes.size);
        answer_bulk(answer, bytes);
        break;
    case LUA_TNUMBER:
        answer_integer(answer, truncate_number(lua_tonumber(lua, -1)));
        break;
    case LUA_TTABLE:
        answer_table(lua, answer);
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1))
            answer_integer(answer, 1);
        else
            answer_nil(answer);
        break;
    default:
        answer_nil(answer);
    }
    lua_pop(lua, 1);
}

/* ---- What scripts can call ---- */

static struct scripts *scripts_of(lua_State *lua) {
    return lua_touserdata(lua, lua_upvalueindex(1));
}

/* Turns a number into a string on the stack, where it lives as long as the others. */
static bool take_word(lua_State *lua, int place, struct slice *ret_word) {
    char digits[40];
    int type = lua_type(lua, place);
    if (type == LUA_TNUMBER) {
        int size = snprintf(digits, sizeof(digits), "%.17g", lua_tonumber(lua, place));
        lua_pushlstring(lua, digits, (size_t)size);
        lua_replace(lua, place);
    } else if (type != LUA_TSTRING) {
        return false;
    }
    ret_word->bytes = lua_tolstring(lua, place, &ret_word->size);
    return true;
}

/* Leaves the reply on the stack. Returns false if it is an error. */
static bool serve_call(lua_State *lua) {
    struct scripts *scripts = scripts_of(lua);
    size_t count = (size_t)lua_gettop(lua), taken = 0;
    if (scripts->words_room < count) {
        scripts->words_room = 2 * count;
        scripts->words =
            bytes_allocate(scripts->words, scripts->words_room * sizeof(*scripts->words));
    }
    while (taken < count && take_word(lua, (int)taken + 1, &scripts->words[taken]))
        taken++;
    struct call call = {scripts->redis, NULL, scripts->words, count, &scripts->answer};
    scripts->answer.size = 0;
    if (count == 0)
        answer_error(call.answer,
                     "ERR Please specify at least one argument for this redis lib call");
    else if (taken < count)
        answer_error(call.answer,
                     "ERR Lua redis lib command arguments must be strings or integers");
    else
        model_serve_script(&call, &scripts->wrote);
    push_reply(lua, scripts->answer.bytes);
    return scripts->answer.bytes[0] != '-';
}

static int lua_redis_call(lua_State *lua) {
    return serve_call(lua) ? 1 : lua_error(lua);
}

static int lua_redis_pcall(lua_State *lua) {
    serve_call(lua);
    return 1;
}

static int lua_error_reply(lua_State *lua) {
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING)
        return wrong_arguments(lua, "ERR wrong number or type of arguments");
    size_t size;
    const char *text = lua_tolstring(lua, 1, &size);
    bool dash = size && text[0] == '-';
    push_error(lua, text + dash, size - dash);
    return 1;
}

static int lua_status_reply(lua_State *lua) {
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING)
        return wrong_arguments(lua, "ERR wrong number or type of arguments");
    lua_createtable(lua, 0, 1);
    lua_insert(lua, 1);
    lua_setfield(lua, 1, "ok");
    return 1;
}

static int lua_sha1hex(lua_State *lua) {
    char digest[SHA1_SIZE + 1];
    size_t size;
    if (lua_gettop(lua) != 1) {
        wrong_arguments(lua, "ERR wrong number of arguments");
        return lua_error(lua);
    }
    const char *text = lua_tolstring(lua, 1, &size);
    sha1_hex(text ? text : "", text ? size : 0, digest);
    lua_pushstring(lua, digest);
    return 1;
}

/* ---- The state ---- */

static int refuse_write(lua_State *lua) {
    return luaL_error(lua, "Attempt to modify a readonly table");
}

static int refuse_read(lua_State *lua) {
    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      lua_tostring(lua, -1));
}

/* Puts an empty table in front of the one on the stack. */
static void push_front(lua_State *lua) {
    lua_newtable(lua);
    lua_createtable(lua, 0, 3);
    lua_pushvalue(lua, -3);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, refuse_write);
    lua_setfield(lua, -2, "__newindex");
    lua_pushboolean(lua, 0);
    lua_setfield(lua, -2, "__metatable");
    lua_setmetatable(lua, -2);
    lua_remove(lua, -2);
}

/* Defines the handler of errors that leave a script, and pcall, both as in Redis. The handler
 * turns an error into a table that says where it happened; pcall returns the text of such a
 * table. */
static const char prelude[] =
    "local getinfo, pcall = debug.getinfo, pcall\n"
    "local function handler(err)\n"
    "    local info = getinfo(2, 'nSl')\n"
    "    if info and info.what == 'C' then info = getinfo(3, 'nSl') end\n"
    "    if type(err) ~= 'table' then err = {err = 'ERR ' .. tostring(err)} end\n"
    "    if info then err.source, err.line = info.source, info.currentline end\n"
    "    return err\n"
    "end\n"
    "local function results(ok, err, ...)\n"
    "    if not ok and type(err) == 'table' and type(err.err) == 'string' then err = err.err end\n"
    "    return ok, err, ...\n"
    "end\n"
    "return handler, function(...) return results(pcall(...)) end\n";

static void open_libraries(lua_State *lua) {
    static const luaL_Reg libraries[] = {{"", luaopen_base},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_DBLIBNAME, luaopen_debug}};
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        lua_pushcfunction(lua, libraries[i].func);
        lua_pushstring(lua, libraries[i].name);
        lua_call(lua, 1, 0);
    }
}

/* Adds the table `redis` to the table on the stack. */
static void add_redis(struct scripts *scripts) {
    static const luaL_Reg functions[] = {{"call", lua_redis_call},
                                         {"pcall", lua_redis_pcall},
                                         {"error_reply", lua_error_reply},
                                         {"status_reply", lua_status_reply},
                                         {"sha1hex", lua_sha1hex}};
    lua_State *lua = scripts->lua;
    lua_newtable(lua);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        lua_pushlightuserdata(lua, scripts);
        lua_pushcclosure(lua, functions[i].func, 1);
        lua_setfield(lua, -2, functions[i].name);
    }
    push_front(lua);
    lua_setfield(lua, -2, "redis");
}

/* Makes the table of globals for scripts, and leaves it on the stack. */
static void push_globals(struct scripts *scripts) {
    static const char *const functions[] = {"_VERSION", "assert", "error",        "getmetatable",
                                            "ipairs",   "next",   "pairs",        "rawequal",
                                            "rawget",   "select", "setmetatable", "tonumber",
                                            "tostring", "type",   "unpack",       "xpcall"};
    static const char *const libraries[] = {"math", "string", "table"};
    lua_State *lua = scripts->lua;
    lua_newtable(lua);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        lua_getglobal(lua, functions[i]);
        lua_setfield(lua, -2, functions[i]);
    }
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        lua_getglobal(lua, libraries[i]);
        if (i == 0) { /* it would use C's randomness */
            lua_pushnil(lua);
            lua_setfield(lua, -2, "random");
            lua_pushnil(lua);
            lua_setfield(lua, -2, "randomseed");
        }
        push_front(lua);
        lua_setfield(lua, -2, libraries[i]);
    }
    add_redis(scripts);
    lua_createtable(lua, 0, 1);
    lua_pushcfunction(lua, refuse_read);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
}

struct scripts *scripts_new(struct model_redis *redis) {
    struct scripts *scripts = bytes_allocate(NULL, sizeof(*scripts));
    struct pool *pool = pool_new();
    lua_State *lua = lua_newstate(pool_allocate, pool);
    assert(lua);
    *scripts = (struct scripts){.redis = redis, .pool = pool, .lua = lua};
    open_libraries(lua);
    push_globals(scripts);
    int failed = luaL_loadstring(lua, prelude) || lua_pcall(lua, 0, 2, 0);
    assert(!failed);
    lua_setfield(lua, -3, "pcall");
    scripts->error_handler = luaL_ref(lua, LUA_REGISTRYINDEX);
    lua_pushvalue(lua, -1);
    scripts->globals = luaL_ref(lua, LUA_REGISTRYINDEX);
    lua_pushvalue(lua, -1);
    push_front(lua);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, -3, "_G");
    lua_replace(lua, LUA_GLOBALSINDEX);
    lua_settop(lua, 0);
    return scripts;
}

void scripts_free(struct scripts *scripts) {
    lua_close(scripts->lua);
    pool_free(scripts->pool);
    for (size_t i = 0; i < scripts->count; i++)
        slice_free(scripts->items[i].text);
    text_free(&scripts->answer);
    free(scripts->words);
    free(scripts->items);
    free(scripts);
}

/* ---- Scripts ---- */

void scripts_forget(struct scripts *scripts) {
    for (size_t i = 0; i < scripts->count; i++)
        scripts->items[i].known = false;
}

/* Finds its place, or where it would be. The case of the digits does not matter. */
static size_t find_place(const struct scripts *scripts, const char *sha1, bool *ret_found) {
    size_t low = 0, high = scripts->count;
    *ret_found = false;
    while (low < high && !*ret_found) {
        size_t middle = (low + high) / 2;
        int order = strncasecmp(sha1, scripts->items[middle].sha1, SHA1_SIZE);
        *ret_found = order == 0;
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

static struct script *find(const struct scripts *scripts, struct slice sha1) {
    bool found = false;
    size_t place = sha1.size == SHA1_SIZE ? find_place(scripts, sha1.bytes, &found) : 0;
    return found ? &scripts->items[place] : NULL;
}

bool scripts_know(const struct scripts *scripts, struct slice sha1) {
    const struct script *script = find(scripts, sha1);
    return script && script->known;
}

/* Most texts have come before. Comparing them is faster than computing the SHA-1. */
static struct script *find_text(const struct scripts *scripts, struct slice text) {
    for (size_t i = 0; i < scripts->count; i++) {
        if (slice_compare(scripts->items[i].text, text) == 0)
            return &scripts->items[i];
    }
    return NULL;
}

/* Adds the function on the stack. */
static void add_script(struct scripts *scripts, struct slice text, const char sha1[SHA1_SIZE + 1]) {
    bool found;
    size_t place = find_place(scripts, sha1, &found);
    assert(!found);
    if (scripts->count == scripts->room) {
        scripts->room = 2 * scripts->room + 8;
        scripts->items = bytes_allocate(scripts->items, scripts->room * sizeof(*scripts->items));
    }
    assert(scripts->items);
    struct script *script = &scripts->items[place];
    memmove(script + 1, script, (scripts->count++ - place) * sizeof(*script));
    memcpy(script->sha1, sha1, SHA1_SIZE + 1);
    script->text = slice_copy(text);
    script->function = luaL_ref(scripts->lua, LUA_REGISTRYINDEX);
    script->known = true;
}

bool scripts_load(struct scripts *scripts, struct slice text, char ret_sha1[SHA1_SIZE + 1],
                  struct text *answer) {
    lua_State *lua = scripts->lua;
    struct script *script = find_text(scripts, text);
    if (script) {
        memcpy(ret_sha1, script->sha1, SHA1_SIZE + 1);
        script->known = true;
        return true;
    }
    sha1_hex(text.bytes, text.size, ret_sha1);
    if (luaL_loadbuffer(lua, text.bytes, text.size, "@user_script")) {
        answer_error(answer, "ERR Error compiling script (new function): %s",
                     lua_tostring(lua, -1));
        lua_settop(lua, 0);
        return false;
    }
    add_script(scripts, text, ret_sha1);
    return true;
}

/* ---- Running them ---- */

static void set_global_array(struct scripts *scripts, const char *name, const struct slice *words,
                             size_t count) {
    lua_State *lua = scripts->lua;
    lua_createtable(lua, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushlstring(lua, words[i].bytes, words[i].size);
        lua_rawseti(lua, -2, (int)i + 1);
    }
    lua_setfield(lua, -2, name);
}

/* Answers with the table that the handler made. Redis 7.0 crashes if a script raises a table
 * without err. */
static void answer_raised(lua_State *lua, const char *sha1, struct text *answer) {
    lua_getfield(lua, -1, "err");
    lua_getfield(lua, -2, "source");
    lua_getfield(lua, -3, "line");
    const char *error = lua_tostring(lua, -3), *source = lua_tostring(lua, -2),
               *line = lua_tostring(lua, -1);
    if (!error)
        error = "ERR the model: raised a table without err";
    if (source && line)
        answer_error(answer, "%s script: %s, on %s:%s.", error, sha1, source, line);
    else
        answer_error(answer, "%s", error);
}

void scripts_run(struct scripts *scripts, struct slice sha1, const struct slice *words,
                 size_t count, size_t key_count, struct text *answer) {
    lua_State *lua = scripts->lua;
    const struct script *script = find(scripts, sha1);
    assert(script && script->known);
    scripts->wrote = false;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, scripts->globals);
    set_global_array(scripts, "KEYS", words, key_count);
    set_global_array(scripts, "ARGV", words + key_count, count - key_count);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, scripts->error_handler);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->function);
    if (lua_pcall(lua, 0, 1, -2))
        answer_raised(lua, script->sha1, answer);
    else
        pop_answer(lua, answer);
    lua_settop(lua, 0);
}
