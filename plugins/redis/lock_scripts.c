/* lock_scripts.c: the lock verbs on a lock's record, in Lua, run by the server.
 *
 * They do the same as src/record/lock_record.c, on the same bytes; its comments apply here too.
 * Each is one SET, with PX or with a TTL that it keeps, so a lock's key is never without TTL, and a
 * refusal that changes nothing writes nothing, so that no watch reports it. Numbers are exact up to
 * 2^53, which microseconds since 1970 reach in the year 2255.
 *
 * A lock without contention takes a shortcut: taking it when there is no record, or one without
 * holds and wish; and ending the only hold of a record, of which the client knows all that comes
 * before its end. By callgrind, with Redis 7.0, an empty script costs the server 7 thousand
 * instructions, TIME 7, GET and PTTL 2 each, SET 8, and 4 more with PX, which KEEPTTL saves; a
 * number that is an argument to a command costs 2, since it is printed, and each of ARGV 1. So the
 * client sends the bytes of a record as far as it knows them, and a shortcut answers by what is at
 * hand. Taking costs 46, releasing 30.
 *
 * The answer of the general way is one string of four numbers {status, now, left_ms, fence}, 8
 * bytes each, little-endian, because an array of them costs more. The shortcut of LOCK answers the
 * fencing token, which is the server's time, that of UNLOCK the bytes that it has written.
 *
 * Only redis.pcall is used, and its errors are returned as they are, as in scripts.c. */
#include "redis.h"

/* C99 promises no string of more than 4095 bytes; gcc and clang have no limit. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

#define CALL "local call, k, pack = redis.pcall, KEYS[1], struct.pack\n"

/* The server's time in microseconds and in ms. */
#define TIME                                                                                       \
  "local t = call('TIME')\n"                                                                       \
  "if t.err then return t end\n"                                                                   \
  "local us = t[1] * 1000000 + t[2]\n"                                                             \
  "local now = (us - us % 1000) / 1000\n"

#define GET "local got = call('GET', k)\n"

/* Beginning of the scripts whose ARGV[1] is the token. */
#define BEGIN CALL TIME GET "local token, mark = ARGV[1], 0\n"

#define ANSWER "pack('<i8i8i8i8', "

/* The lock as the verb finds it, after ends that can't be right are dated anew in `got`, `wish` and
 * `turn` (`changed`). `mine`: offset of this token's hold in the record, or nil. Of the holds of
 * other tokens, `others` is the last end; `alone`, `read`: that of the exclusive one, the shared
 * ones; `permits`, `soon`: number and first end of the permits. `waiting`: length of the queue;
 * `first`, `wants`, `limit`: token and mode of its first place, and how many permits there may be;
 * `place`, `stands`: number and offset of this token's. Foreign data is answered at once, with
 * `mark` in the place of the fencing token. */
#define LOOK                                                                                       \
  "local fence, wish, turn, live, others, alone, waiting, place = 0, 0, 0, 0, 0, 0, 0, 0\n"        \
  "local mine, first, wants, limit, stands, passes, changed\n"                                     \
  "local read, permits, soon = 0, 0, 2^53\n"                                                       \
  "if got then\n"                                                                                  \
  "  local count\n"                                                                                \
  "  if type(got) == 'table' then\n"                                                               \
  "    if not string.find(got.err, 'WRONGTYPE', 1, true) then return got end\n"                    \
  "  elseif #got >= 32 and string.sub(got, 1, 4) == 'crk1' then\n"                                 \
  "    count, fence, wish, turn = struct.unpack('<I2xxi8i8i8', got, 5)\n"                          \
  "  end\n"                                                                                        \
  "  if not count or #got ~= 32 + 128 * count then return " ANSWER                                 \
  "-12, now, call('PTTL', k), mark) end\n"                                                         \
  "  if fence < 0 or fence >= 2 ^ 53 then fence = 0 end\n"                                         \
  "  if wish - now > 4000 then wish, changed = now + 2000, true end\n"                             \
  "  if turn - now > 2250 then turn, changed = now + 250, true end\n"                              \
  "  for at = 33, #got, 128 do\n"                                                                  \
  "    local who, mode, length, till, since = struct.unpack('<c16BxxxI4i8i8', got, at)\n"          \
  "    if till > now then\n"                                                                       \
  "      if length == 0 then length = since > 0 and since < 2 ^ 53 and since < till and till - "   \
  "since or 86400000 end\n"                                                                        \
  "      length = math.min(length, 86400000)\n"                                                    \
  "      if till - now > length + 2000 then\n"                                                     \
  "        till, changed = now + length, true\n"                                                   \
  "        got = string.sub(got, 1, at + 23) .. pack('<i8i8', till, math.min(since, now)) .. "     \
  "string.sub(got, at + 40)\n"                                                                     \
  "      end\n"                                                                                    \
  "      if mode >= 4 then\n"                                                                      \
  "        waiting = waiting + 1\n"                                                                \
  "        if waiting == 1 then\n"                                                                 \
  "          first, wants, limit = who, mode, struct.unpack('<i8', got, at + 40)\n"                \
  "        end\n"                                                                                  \
  "        if who == token then place, stands = waiting, at end\n"                                 \
  "      else\n"                                                                                   \
  "        live = live + 1\n"                                                                      \
  "        if who == token then\n"                                                                 \
  "          mine = at\n"                                                                          \
  "        else\n"                                                                                 \
  "          if till > others then others = till end\n"                                            \
  "          if mode == 1 then alone = till end\n"                                                 \
  "          if mode == 2 then read = math.max(read, till) end\n"                                  \
  "          if mode == 3 then permits, soon = permits + 1, math.min(soon, till) end\n"            \
  "        end\n"                                                                                  \
  "      end\n"                                                                                    \
  "    elseif mode >= 4 and waiting == 0 then\n"                                                   \
  "      turn = 0\n"                                                                               \
  "    end\n"                                                                                      \
  "  end\n"                                                                                        \
  "end\n"

/* Reads this token's hold. A fencing token that no store can have given counts as none. */
#define OWN                                                                                        \
  "struct.unpack('<BxxxI4i8i8i8c80', got, mine + 16)\n"                                            \
  "since = math.min(since, now)\n"                                                                 \
  "if f < 0 or f >= 2 ^ 53 then f = 0 end\n"

/* `lasts`: the hold's life in ms. */
#define EXTENDS                                                                                    \
  "if now + lasts >= till then till, length = now + lasts, math.min(lasts, 86400000) end\n"

/* Writes the holds and places of other tokens, except the first place if that `passes`, and `own`,
 * if given, which has this mode and ends at `till`: this token's hold, or with `number` its place:
 * a new one, 0, or in the place of that number. The first place's turn begins when no hold is in
 * its way. Returns an error or nil. A hold can be lengthened and ended, and a place given back,
 * even when the server is out of memory, because a script that has written may go on writing, and
 * PEXPIRE is never refused for memory. */
#define WRITE                                                                                      \
  "local function barred(kind, most, writer, reader, n, any)\n"                                    \
  "  if kind == 6 then return writer or n > 0 end\n"                                               \
  "  if kind == 7 then return writer or reader or n >= (most > 0 and most or 1024) end\n"          \
  "  return any\n"                                                                                 \
  "end\n"                                                                                          \
  "local function write(own, kind, till, number)\n"                                                \
  "  local holds, last, n, t = {}, math.max(now, wish), 0, 0\n"                                    \
  "  local head, what, most, any, writer, reader\n"                                                \
  "  local lent = 0\n"                                                                             \
  "  local function put(entry, who, mode, e)\n"                                                    \
  "    holds[#holds + 1] = entry\n"                                                                \
  "    if e > last then last = e end\n"                                                            \
  "    if mode < 4 then\n"                                                                         \
  "      any, writer, reader = true, writer or mode == 1, reader or mode == 2\n"                   \
  "      if mode == 3 then lent = lent + 1 end\n"                                                  \
  "    elseif not head then\n"                                                                     \
  "      head, what, most = who, mode, struct.unpack('<i8', entry, 41)\n"                          \
  "    end\n"                                                                                      \
  "  end\n"                                                                                        \
  "  for at = 33, live + waiting > 0 and #got or 0, 128 do\n"                                      \
  "    local who, mode, e = struct.unpack('<c16Bxxxxxxxi8', got, at)\n"                            \
  "    if e > now then\n"                                                                          \
  "      if mode >= 4 then n = n + 1 end\n"                                                        \
  "      if mode >= 4 and n == 1 and passes then\n"                                                \
  "      elseif who ~= token then\n"                                                               \
  "        put(string.sub(got, at, at + 127), who, mode, e)\n"                                     \
  "      elseif mode >= 4 and n == number then\n"                                                  \
  "        put(own, who, mode, till)\n"                                                            \
  "      end\n"                                                                                    \
  "    end\n"                                                                                      \
  "  end\n"                                                                                        \
  "  if own and (number or 0) == 0 then put(own, token, kind, till) end\n"                         \
  "  if head and not barred(what, most, writer, reader, lent, any) then\n"                         \
  "    t = head == first and turn > 0 and turn or now + 250\n"                                     \
  "  end\n"                                                                                        \
  "  local record = pack('<c4i4i8i8i8', 'crk1', #holds, fence, wish, t) .. table.concat(holds)\n"  \
  "  local life = last - now + 60000\n"                                                            \
  "  local r = call('SET', k, record, 'PX', life)\n"                                               \
  "  if r.err and (mine or not own) and string.find(r.err, 'OOM', 1, true) then\n"                 \
  "    call('PEXPIRE', k, life)\n"                                                                 \
  "    r = call('SET', k, record, 'PX', life)\n"                                                   \
  "  end\n"                                                                                        \
  "  return r.err and r\n"                                                                         \
  "end\n"                                                                                          \
  "local function hold(mode, length, till, since, f, note)\n"                                      \
  "  return pack('<c16BxxxI4i8i8i8c80', token, mode, length, till, since, f, note)\n"              \
  "end\n"

/* ARGV: bytes 16 to 55 of the record with this hold alone (no wish; token, mode, length), the life
 * of the wish in ms, and how many permits there may be, 4 bytes each, and one more byte for a turn;
 * the hold's life in ms and 60000; note (80 bytes). If a wish or a place can't be written, there is
 * none. */
static const char lock_text[] = CALL TIME GET
    "local head, g, w\n"
    "if got and #got == 32 then head, g, w = struct.unpack('<c8i8i8', got) end\n"
    "if not got or head == 'crk1\\0\\0\\0\\0' and g < us and w == 0 then\n"
    "  local r = call('SET', k, pack('<c8i8c40i8i8i8c80', 'crk1\\1\\0\\0\\0', us, ARGV[1],\n"
    "                                now + ARGV[2] - 60000, now, us, ARGV[3]), 'PX', ARGV[2])\n"
    "  return r.err and r or us\n"
    "end\n"
    "local _, token, kind, _, w_ms, most = struct.unpack('<c16c16BxxxI4I4I4', ARGV[1])\n"
    "local lasts, mark = ARGV[2] - 60000, 0\n" LOOK WRITE
    "local mode, length, till, since, f, note = kind, 0, 0, now, 0, ARGV[3]\n"
    "if mine then\n"
    "  mode, length, till, since, f, note = " OWN "else\n"
    "  local ahead, way, own, e, at = waiting, others, nil, 0, 0\n"
    "  if place > 0 then\n"
    "    ahead = place - 1\n"
    "    own, e = string.sub(got, stands, stands + 127), struct.unpack('<i8', got, stands + 24)\n"
    "  end\n"
    "  if mode == 2 and permits == 0 then way = alone end\n"
    "  if mode == 3 then way = math.max(alone, read, permits >= most and soon or 0) end\n"
    "  if mode > 1 and waiting == 0 then way = math.max(way, wish) end\n"
    "  if ahead > 0 then\n"
    "    if barred(wants, limit, alone > 0, read > 0, permits, others > 0) then\n"
    "      way = others\n"
    "    elseif turn > now then\n"
    "      way = math.max(way, turn)\n"
    "    else\n"
    "      passes, changed = turn > 0, true\n"
    "      if not passes or ahead > 1 then way = math.max(way, now + 250) end\n"
    "    end\n"
    "  end\n"
    "  if way > now then\n"
    "    if #ARGV[1] > 48 then\n"
    "      if passes then ahead = ahead - 1 end\n"
    "      if place > 0 and e - now < 15000 then\n"
    "        e, changed = now + 30000, true\n"
    "        own = string.sub(own, 1, 20) .. pack('<I4i8', 30000, e) .. string.sub(own, 33)\n"
    "      elseif place == 0 and w_ms > 0 and ahead < 256 then\n"
    "        e, changed = now + 30000, true\n"
    "        own = hold(mode + 4, 30000, e, now, mode == 3 and most or 0, note)\n"
    "      end\n"
    "      if own then at = ahead + 1 end\n"
    "    elseif mode == 1 and w_ms > 0 and alone == 0 and waiting == 0 and\n"
    "      (wish <= now or wish - now < math.floor(w_ms / 2)) then\n"
    "      wish, changed = now + w_ms, true\n"
    "    end\n"
    "    if changed then write(own, mode + 4, e, place) end\n"
    "    return " ANSWER "-8, now, way - now, at)\n"
    "  end\n"
    "  if live >= 1024 then\n"
    "    if changed then write(own, mode + 4, e, place) end\n"
    "    return " ANSWER "-16, now, 0, 0)\n"
    "  end\n"
    "  f = math.max(fence + 1, us)\n"
    "  fence = f\n"
    "  if mode == 1 then wish = 0 end\n"
    "end\n" EXTENDS "return write(hold(mode, length, till, since, f, note), mode, till) or " ANSWER
    "0, now, till - now, f)\n";

/* ARGV: token, lease ms, mode (2: becomes shared), least fencing token; and, of a hold that is
 * taken over, `from` and the new note (80 bytes). Then `token` is `from`, if the record has no hold
 * of ARGV[1]. */
static const char extend_text[] = BEGIN
    "local from = ARGV[5]\n"
    "if not from or type(got) ~= 'string' or string.find(got, token, 33, true) then\n"
    "  from = nil\n"
    "else\n"
    "  token = from\n"
    "end\n" LOOK WRITE "if not mine then return " ANSWER
    "-9, now, math.max(others - now, 0), 0) end\n"
    "local mode, length, till, since, f, note = " OWN
    "if from and mode == 2 and ARGV[3] ~= '2' then return " ANSWER
    "-9, now, math.max(others, till) - now, 0) end\n"
    "if from then f, note = fence + 1, ARGV[6] end\n"
    "if ARGV[3] == '2' and mode ~= 3 then mode = 2 end\n"
    "local lasts = tonumber(ARGV[2])\n"
    "f = math.max(f, tonumber(ARGV[4]))\n"
    "fence = math.max(fence, f)\n" EXTENDS "local own = hold(mode, length, till, since, f, note)\n"
    "if from then own = ARGV[1] .. string.sub(own, 17) end\n"
    "return write(own, mode, till) or " ANSWER "0, now, till - now, f)\n";

/* ARGV: the first 48 bytes of the record with this hold alone, which end in its token, and the
 * record that is left of it. A record's key lives for a minute after its last hold, so its TTL
 * tells whether that has ended. The key keeps its TTL, except after a hold of more than ten
 * minutes. A server that doesn't know KEEPTTL goes the general way. */
static const char unlock_text[] =
    CALL GET "if got and #got == 160 and string.sub(got, 1, 48) == ARGV[1] then\n"
             "  local left = call('PTTL', k)\n"
             "  if type(left) == 'number' and left > 60000 and left <= 660000 then\n"
             "    local r = call('SET', k, ARGV[2], 'KEEPTTL')\n"
             "    if not r.err then return ARGV[2] end\n"
             "  end\n"
             "end\n" TIME "local token = string.sub(ARGV[1], 33, 48)\n"
             "local mark = struct.unpack('<I4', token)\n" LOOK WRITE
             "if not mine and place == 0 then return " ANSWER
             "-9, now, math.max(others - now, 0), mark) end\n"
             "return write() or " ANSWER "0, now, 0, mark)\n";

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
    {"1e1dfdcdab142a02d6e5e19b73fd28a25d49e569", lock_text},
    {"e53af4a5ed312293ed4972036b0d66f96a293df9", extend_text},
    {"0e58d9093d749c5033f08653d64a3773bd381ce8", unlock_text},
    {"26379eb93f6fd8bc1b95dbad771d5285d476d59f", repair_text},
};

const crl_redis_script *crl_redis_lock_script_get(crl_redis_script_id id) {
  return &scripts[id - CRL_REDIS_LOCK];
}
