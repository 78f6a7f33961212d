/* lock_scripts.c: the lock verbs on a lock's record, in Lua, run by the server.
 *
 * They do the same as src/record/lock_record.c, on the same bytes; its comments apply here too.
 * Each is one SET with PX, so a lock's key is never without TTL, and a refusal that changes nothing
 * writes nothing, so that no watch reports it. Numbers are exact up to 2^53, which microseconds
 * since 1970 reach in the year 2255.
 *
 * A lock without contention takes a shortcut: taking it when there is no record or one without
 * holds, and ending the only hold of a record. That costs the server half as much as the general
 * way. The answer is one string of four numbers {status, now, left_ms, fence}, 8 bytes each,
 * little-endian, because an array of them costs more.
 *
 * Only redis.pcall is used, and its errors are returned as they are, as in scripts.c. */
#include "redis.h"

/* Beginning of each script. ARGV[1] is the token. */
#define BEGIN                                                                                      \
  "local call, k, token, pack = redis.pcall, KEYS[1], ARGV[1], struct.pack\n"                      \
  "local t = call('TIME')\n"                                                                       \
  "if t.err then return t end\n"                                                                   \
  "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"                                            \
  "local got = call('GET', k)\n"

#define ANSWER "pack('<i8i8i8i8', "

/* The lock as the verb finds it, after ends that can't be right are dated anew in `got` and `wish`
 * (`redated`). `mine`: offset of this token's hold in the record, or nil; `others`, `alone`: the
 * last end of a hold of another token, and the end of an exclusive one. */
#define LOOK                                                                                       \
  "local fence, wish, live, others, alone, mine, redated = 0, 0, 0, 0, 0\n"                        \
  "if got then\n"                                                                                  \
  "  local count\n"                                                                                \
  "  if type(got) == 'table' then\n"                                                               \
  "    if not string.find(got.err, 'WRONGTYPE', 1, true) then return got end\n"                    \
  "  elseif #got >= 32 and string.sub(got, 1, 4) == 'crk1' then\n"                                 \
  "    count, fence, wish = struct.unpack('<I2xxi8i8', got, 5)\n"                                  \
  "  end\n"                                                                                        \
  "  if not count or #got ~= 32 + 128 * count then return " ANSWER                                 \
  "-12, now, call('PTTL', k), 0) end\n"                                                            \
  "  if fence < 0 or fence >= 2 ^ 53 then fence = 0 end\n"                                         \
  "  if wish - now > 4000 then wish, redated = now + 2000, true end\n"                             \
  "  for at = 33, #got, 128 do\n"                                                                  \
  "    local who, mode, length, till, since = struct.unpack('<c16BxxxI4i8i8', got, at)\n"          \
  "    if till > now then\n"                                                                       \
  "      if length == 0 then length = since > 0 and since < 2 ^ 53 and since < till and till - "   \
  "since or 86400000 end\n"                                                                        \
  "      length = math.min(length, 86400000)\n"                                                    \
  "      if till - now > length + 2000 then\n"                                                     \
  "        till, redated = now + length, true\n"                                                   \
  "        got = string.sub(got, 1, at + 23) .. pack('<i8i8', till, math.min(since, now)) .. "     \
  "string.sub(got, at + 40)\n"                                                                     \
  "      end\n"                                                                                    \
  "      live = live + 1\n"                                                                        \
  "      if who == token then\n"                                                                   \
  "        mine = at\n"                                                                            \
  "      else\n"                                                                                   \
  "        if till > others then others = till end\n"                                              \
  "        if mode == 1 then alone = till end\n"                                                   \
  "      end\n"                                                                                    \
  "    end\n"                                                                                      \
  "  end\n"                                                                                        \
  "end\n"

/* Reads this token's hold. A fencing token that no store can have given counts as none. */
#define OWN                                                                                        \
  "struct.unpack('<BxxxI4i8i8i8c80', got, mine + 16)\n"                                            \
  "since = math.min(since, now)\n"                                                                 \
  "if f < 0 or f >= 2 ^ 53 then f = 0 end\n"

#define EXTENDS                                                                                    \
  "if now + ARGV[2] >= till then till, length = now + ARGV[2], math.min(ARGV[2], 86400000) end\n"

/* Writes the other tokens' holds and, if given, this token's own hold, which ends at `till`.
 * Returns an error or nil. A hold can be lengthened and ended even when the server is out of
 * memory, because a script that has written may go on writing, and PEXPIRE is never refused for
 * memory. */
#define WRITE                                                                                      \
  "local function write(own, till)\n"                                                              \
  "  local holds, last = {}, math.max(now, wish)\n"                                                \
  "  for at = 33, live > 0 and #got or 0, 128 do\n"                                                \
  "    local who, e = struct.unpack('<c16xxxxxxxxi8', got, at)\n"                                  \
  "    if e > now and who ~= token then\n"                                                         \
  "      holds[#holds + 1] = string.sub(got, at, at + 127)\n"                                      \
  "      if e > last then last = e end\n"                                                          \
  "    end\n"                                                                                      \
  "  end\n"                                                                                        \
  "  if own then\n"                                                                                \
  "    holds[#holds + 1] = own\n"                                                                  \
  "    if till > last then last = till end\n"                                                      \
  "  end\n"                                                                                        \
  "  local record = pack('<c4i4i8i8i8', 'crk1', #holds, fence, wish, 0) .. table.concat(holds)\n"  \
  "  local life = last - now + 60000\n"                                                            \
  "  local r = call('SET', k, record, 'PX', life)\n"                                               \
  "  if r.err and mine and string.find(r.err, 'OOM', 1, true) then\n"                              \
  "    call('PEXPIRE', k, life)\n"                                                                 \
  "    r = call('SET', k, record, 'PX', life)\n"                                                   \
  "  end\n"                                                                                        \
  "  return r.err and r\n"                                                                         \
  "end\n"                                                                                          \
  "local function hold(mode, length, till, since, f, note)\n"                                      \
  "  return pack('<c16BxxxI4i8i8i8c80', token, mode, length, till, since, f, note)\n"              \
  "end\n"

/* ARGV: token, lease ms, mode (1 exclusive, 2 shared), note (80 bytes), life of the wish (ms). If a
 * wish can't be written, there is none. */
static const char lock_text[] =
    BEGIN "if not got or #got == 32 then\n"
          "  local magic, count, g, w, f = 'crk1', 0, 0, 0, t[1] * 1000000 + t[2]\n"
          "  if got then magic, count, g, w = struct.unpack('<c4I2xxi8i8', got) end\n"
          "  if magic == 'crk1' and count == 0 and (w <= now or ARGV[3] == '1') then\n"
          "    if g >= f and g < 2 ^ 53 then f = g + 1 end\n"
          "    if ARGV[3] == '1' then w = 0 end\n"
          "    local r = call('SET', k, pack('<c4i4i8i8i8c16BxxxI4i8i8i8c80', magic, 1, f, w, 0, "
          "token, ARGV[3], math.min(ARGV[2], 86400000),\n"
          "                         now + ARGV[2], now, f, ARGV[4]), 'PX', ARGV[2] + 60000)\n"
          "    return r.err and r or " ANSWER "0, now, ARGV[2], f)\n"
          "  end\n"
          "end\n" LOOK WRITE
          "local mode, length, till, since, f, note = tonumber(ARGV[3]), 0, 0, now, 0, ARGV[4]\n"
          "if mine then\n"
          "  mode, length, till, since, f, note = " OWN "else\n"
          "  local way = others\n"
          "  if mode == 2 then way = math.max(alone, wish) end\n"
          "  if way > now then\n"
          "    local w = tonumber(ARGV[5])\n"
          "    if mode == 1 and w > 0 and alone == 0 and (wish <= now or wish - now < math.floor(w "
          "/ 2)) then\n"
          "      wish, redated = now + w, true\n"
          "    end\n"
          "    if redated then write() end\n"
          "    return " ANSWER "-8, now, way - now, 0)\n"
          "  end\n"
          "  if live >= 1024 then\n"
          "    if redated then write() end\n"
          "    return " ANSWER "-16, now, 0, 0)\n"
          "  end\n"
          "  f = math.max(fence + 1, t[1] * 1000000 + t[2])\n"
          "  fence = f\n"
          "  if mode == 1 then wish = 0 end\n"
          "end\n" EXTENDS "return write(hold(mode, length, till, since, f, note), till) or " ANSWER
          "0, now, till - now, f)\n";

/* ARGV: token, lease ms, mode (2: becomes shared), least fencing token. */
static const char extend_text[] = BEGIN LOOK WRITE
    "if not mine then return " ANSWER "-9, now, math.max(others - now, 0), 0) end\n"
    "local mode, length, till, since, f, note = " OWN "if ARGV[3] == '2' then mode = 2 end\n"
    "f = math.max(f, tonumber(ARGV[4]))\n"
    "fence = math.max(fence, f)\n" EXTENDS
    "return write(hold(mode, length, till, since, f, note), till) or " ANSWER
    "0, now, till - now, f)\n";

/* ARGV: token. */
static const char unlock_text[] =
    BEGIN "if got and #got == 160 then\n"
          "  local magic, count, f, w, who, mode, till = "
          "struct.unpack('<c4I2xxi8i8xxxxxxxxc16i8i8', got)\n"
          "  if who == token and magic == 'crk1' and count == 1 and till > now and w <= now and f "
          ">= 0 and f < 2 ^ 53 then\n"
          "    local r = call('SET', k, pack('<c4i4i8i8i8', magic, 0, f, w, 0), 'PX', 60000)\n"
          "    if not r.err then return " ANSWER "0, now, 0, 0) end\n"
          "  end\n"
          "end\n" LOOK WRITE "if not mine then return " ANSWER
          "-9, now, math.max(others - now, 0), 0) end\n"
          "return write() or " ANSWER "0, now, 0, 0)\n";

/* ARGV: an empty token, and the TTL (ms) of a key that corral did not write and that has none. LOOK
 * returns the answer for a key that isn't a lock's record. */
static const char repair_text[] =
    "local function look()\n" BEGIN LOOK "  return " ANSWER "0, now, 0, 0)\n"
    "end\n"
    "local r = look()\n"
    "if type(r) == 'table' then return r end\n"
    "local status, now, ttl = struct.unpack('<i8i8i8', r)\n"
    "if status ~= -12 or ttl ~= -1 then return r end\n"
    "local e = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])\n"
    "return type(e) == 'table' and e or struct.pack('<i8i8i8i8', -12, now, ARGV[2], 0)\n";

static const crl_redis_script scripts[] = {
    {"21d8830de6b692ad16a51e385581ad0a9bff0b6c", lock_text},
    {"3406ba46db31bbe30dded6cfc070a7225af53fb6", extend_text},
    {"4f94b2ffebfd3e7c5f9bddaa24dbdc21e8385c3e", unlock_text},
    {"279de9cbdfc608d91a38beb4bcbc015d43eab574", repair_text},
};

const crl_redis_script *crl_redis_lock_script_get(crl_redis_script_id id) {
  return &scripts[id - CRL_REDIS_LOCK];
}
