/* scripts.c: the verbs on a record, in Lua, run by the server.
 *
 * They do the same as src/record/record.c (crl_record_decide), with three differences. A key is
 * never without TTL: that of its body, or of the lease or verdict that outlasts it. When the lease
 * of a record with a body has ended, its bytes stay behind the body, since a string can't be cut:
 * readers skip them. And a lease without a body may tell no end, because it is that of its key.
 *
 * Only redis.pcall is used, and its errors are returned as they are: so the first word of an error
 * stays the first, in Redis 6 as in Redis 7. Every script answers {status, now} (CLAIM: {status,
 * now, record or front, same}), or a status alone if it hasn't asked for the time.
 *
 * A script that has written may go on writing when the server is out of memory, and PEXPIRE is
 * never refused for memory. Hence PEXPIRE comes first: a lease can always be extended and given
 * back. */
#include "redis.h"

/* C99 promises no string of more than 4095 bytes; gcc and clang have no limit. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* The server's time. A user who may not ask for it learns it from the key's own end: Redis 7 tells
 * when that is, and how far away. Where there is no key, or no end of it, no time is known: 0. */
#define NOW                                                                                        \
  "local t, now = call('TIME'), 0\n"                                                               \
  "if not t.err then\n"                                                                            \
  "now = t[1] * 1000 + math.floor(t[2] / 1000)\n"                                                  \
  "else\n"                                                                                         \
  "local e, left = tonumber(call('PEXPIRETIME', k)), tonumber(call('PTTL', k))\n"                  \
  "if not (e and left) then return t end\n"                                                        \
  "if e >= 0 then now = e - left end\n"                                                            \
  "end\n"

/* Reads the record. ARGV[1] is the token for all scripts that have one. `at`: offset of the lease;
 * `fin`: when the body's life ends; `limit`: most that the lease or verdict may have been taken
 * for. NEWER: the answer for a record of a later format. */
#define PRELUDE(NEWER)                                                                             \
  "local call, k = redis.pcall, KEYS[1]\n"                                                         \
  "local function bad(r) return type(r) == 'table' and r.err and r or nil end\n" NOW               \
  "local got = call('GETRANGE', k, '0', '191')\n"                                                  \
  "if bad(got) then return got end\n"                                                              \
  "local sub, byte, char = string.sub, string.byte, string.char\n"                                 \
  "local zeros = '\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0'\n"                          \
  "local state, flags, fin, body, fails, at = 0, 0, 0, 0, '\\0\\0', 48\n"                          \
  "local token, length, till, since, parts = '', 0, 0, 0, ''\n"                                    \
  "local absent = got == ''\n"                                                                     \
  "if absent and call('PTTL', k) ~= -2 then return {-12, now} end\n"                               \
  "local known\n"                                                                                  \
  "if not absent then\n"                                                                           \
  "  if #got < 4 or sub(got, 1, 3) ~= 'crl' then return {-12, now} end\n"                          \
  "  if now == 0 then return t end\n"                                                              \
  "  if byte(got, 4) > 50 then return " NEWER " end\n"                                             \
  "  known = byte(got, 4) == 50 and #got >= 48 and byte(got, 5) <= 2\n"                            \
  "end\n"                                                                                          \
  "if known then\n"                                                                                \
  "  state, flags, fails = byte(got, 5), byte(got, 6), sub(got, 23, 24)\n"                         \
  "  fin, body = struct.unpack('<i8I4', got, 9)\n"                                                 \
  "  at = 48 + body\n"                                                                             \
  "  if body > 0 and at > #got then\n"                                                             \
  "    local last = call('GETRANGE', k, at - 1, at - 1)\n"                                         \
  "    if bad(last) then return last end\n"                                                        \
  "    if last == '' then state, fin, body, at = 0, 0, 0, 48 end\n"                                \
  "  end\n"                                                                                        \
  "end\n"                                                                                          \
  "local lease = ''\n"                                                                             \
  "if state > 0 then\n"                                                                            \
  "  lease = body == 0 and sub(got, 49) or call('GETRANGE', k, at, at + 143)\n"                    \
  "  if bad(lease) then return lease end\n"                                                        \
  "  local size = #lease >= 40 and struct.unpack('<I2', lease) or 0\n"                             \
  "  if size < 40 or size > #lease or size > 144 then\n"                                           \
  "    state = 0\n"                                                                                \
  "  else\n"                                                                                       \
  "    length, till, since, token = struct.unpack('<I4i8i8c16', lease, 5)\n"                       \
  "    lease, parts = sub(lease, 1, size), sub(lease, 41, size)\n"                                 \
  "  end\n"                                                                                        \
  "end\n"                                                                                          \
  "local payload = body > 0 and fin > now and fin - now <= 94608e7\n"                              \
  "local limit = math.min(math.max(length, 1), state == 1 and 36e5 or 864e5)\n"                    \
  "local holds = state == 1 and token == ARGV[1]\n"

/* Dates a lease whose end is that of its key. One whose key has no end gets one that is too far
 * away to be believed. */
#define DATE                                                                                       \
  "if state == 1 and body == 0 and till == 0 then\n"                                               \
  "  local left = call('PTTL', k)\n"                                                               \
  "  if bad(left) then return left end\n"                                                          \
  "  till = now + (left < 0 and 1e15 or left - 2000)\n"                                            \
  "  since = till - length\n"                                                                      \
  "  lease = sub(lease, 1, 8) .. struct.pack('<i8i8', till, since) .. sub(lease, 25)\n"            \
  "end\n"

/* Only whether the lease is still this token's: the settle's part of PRELUDE. A string has no
 * field `err`; each call, and each string that is made, is a part of a settle's time. */
#define HOLDS(NOT)                                                                                 \
  "local call, k, sub = redis.pcall, KEYS[1], string.sub\n"                                        \
  "local got = call('GETRANGE', k, '0', '191')\n"                                                  \
  "if got.err then return got end\n"                                                               \
  "local holds, lease, at = #got >= 48 and sub(got, 1, 5) == 'crl2\\1', got, 49\n"                 \
  "if holds and sub(got, 17, 20) ~= '\\0\\0\\0\\0' then\n"                                         \
  "  local body = struct.unpack('<I4', got, 17)\n"                                                 \
  "  lease, at = call('GETRANGE', k, 48 + body, 191 + body), 1\n"                                  \
  "  if lease.err then return lease end\n"                                                         \
  "end\n"                                                                                          \
  "holds = holds and sub(lease, at + 24, at + 39) == ARGV[1]\n"                                    \
  "if holds then\n"                                                                                \
  "  local size, high = string.byte(lease, at, at + 1)\n"                                          \
  "  holds = high == 0 and size >= 40 and size <= 144 and size < #lease - at + 2\n"                \
  "end\n"                                                                                          \
  "if not holds then\n" NOT "  local absent = got == '' and call('PTTL', k) == -2\n"               \
  "  return (absent or #got >= 4 and sub(got, 1, 3) == 'crl') and -9 or -12\n"                     \
  "end\n"

/* For a client that doesn't know the server's time: the end of the body's life, TTL ms from now. */
#define END(TTL)                                                                                   \
  NOW "if now == 0 then return t end\n"                                                            \
      "local fin = struct.pack('<i8', now + " TTL ")\n"

/* Writes the front back, and keeps it in `front`. A key lives as long as its body, or its verdict,
 * or 2 s (CORRAL_LEASE_KEPT_MS) longer than its lease; one without body `keep` ms at least. Without
 * `keep` a server out of memory refuses it, and a TTL that is nearly right stays. Returns an error
 * or nil. */
#define WRITE                                                                                      \
  "local digest, front = known and sub(got, 25, 40) or sub(zeros, 2), ''\n"                        \
  "local function write(keep)\n"                                                                   \
  "  lease = ''\n"                                                                                 \
  "  if state > 0 then\n"                                                                          \
  "    local d = now > 0 and 1 or 0\n"                                                             \
  "    lease = struct.pack('<I2I2I4i8i8c16', 40 + #parts, 0, length, till * d, since * d, token) " \
  ".. parts\n"                                                                                     \
  "  end\n"                                                                                        \
  "  local rest = state > 0 and till - now + (state == 1 and 2000 or 0) or 0\n"                    \
  "  if not payload then\n"                                                                        \
  "    local ttl = math.max(keep or 1, rest, 1)\n"                                                 \
  "    local e = keep and not absent and bad(call('PEXPIRE', k, ttl))\n"                           \
  "    front = 'crl2' .. char(state) .. zeros .. fails .. digest .. sub(zeros, 10) .. lease\n"     \
  "    return e or bad(call('SET', k, front, 'PX', ttl))\n"                                        \
  "  end\n"                                                                                        \
  "  local old = call('PTTL', k)\n"                                                                \
  "  if bad(old) then return old end\n"                                                            \
  "  if old >= 0 and now + old < fin then fin = now + old end\n"                                   \
  "  local ttl = math.max(fin - now, rest)\n"                                                      \
  "  local e = (keep or math.abs(ttl - old) > 99) and bad(call('PEXPIRE', k, math.max(ttl, 1)))\n" \
  "  if e then return e end\n"                                                                     \
  "  local head = char(state, flags) .. sub(got, 7, 8) .. struct.pack('<i8', fin) .. sub(got, "    \
  "17, 22) .. fails\n"                                                                             \
  "  front = 'crl2' .. head .. digest .. sub(got, 41, 48) .. lease\n"                              \
  "  e = lease ~= '' and bad(call('SETRANGE', k, at, lease))\n"                                    \
  "  return e or bad(call('SETRANGE', k, '4', head))\n"                                            \
  "end\n"

/* ARGV: token, lease ms, wish (a front, or empty), seen (a stamp, or empty), token of a dead holder
 * (or empty). */
static const char claim_text[] = PRELUDE("{-27, now}") DATE WRITE
    "local status, e = 0\n"
    "if state > 0 and till > now and not (state == 1 and token == ARGV[5]) then\n"
    "  if not holds then\n"
    "    status = -8\n"
    "    if till - now > limit + 2000 or since - now > 2000 then\n"
    "      since, till, length = now, now + limit, limit\n"
    "      e = write(1)\n"
    "    end\n"
    "  end\n"
    "else\n"
    "  length = tonumber(ARGV[2])\n"
    "  state, token, since, till, parts = 1, ARGV[1], now, now + length, ''\n"
    "  if ARGV[3] ~= '' then\n"
    "    if digest ~= sub(ARGV[3], 25, 40) then payload = false end\n"
    "    digest, parts = sub(ARGV[3], 25, 40), sub(ARGV[3], 89)\n"
    "  end\n"
    "  e = write()\n"
    "end\n"
    "if e then return e end\n"
    "local same = payload and ARGV[4] ~= '' and sub(got, 41, 48) == ARGV[4]\n"
    "if front == '' and (same or body == 0) then front = sub(got, 1, 48) .. lease end\n"
    "if front == '' or (payload and not same) then\n"
    "  front = call('GET', k)\n"
    "  if bad(front) then return front end\n"
    "end\n"
    "return {status, now, front, same and 1 or 0}\n";

/* ARGV: token, ttl ms, record; and anything, if the record's end isn't known. */
static const char settle_text[] =
    HOLDS("") "local r = ARGV[3]\n"
              "if ARGV[4] then\n" END("ARGV[2]") "  r = sub(r, 1, 8) .. fin .. sub(r, 17)\n"
                                                 "  r = call('SET', k, r, 'PX', ARGV[2])\n"
                                                 "  return r.err and r or {0, now}\n"
                                                 "end\n"
                                                 "r = call('SET', k, r, 'PX', ARGV[2])\n"
                                                 "return r.err and r or 0\n";

/* KEYS[2] is the staged record. ARGV: token, ttl ms; and anything, if the record's end isn't known.
 * Answers 1 if nothing is staged. */
static const char stage_text[] = HOLDS(
    "  call('UNLINK', KEYS[2])\n") "local function bad(r) return type(r) == 'table' and r.err and "
                                   "r or nil end\n"
                                   "local e = call('PEXPIRE', KEYS[2], ARGV[2])\n"
                                   "if e == 0 then return 1 end\n"
                                   "e = bad(e)\n"
                                   "if ARGV[3] and not e then\n" END(
                                       "ARGV[2]") "  e = bad(call('SETRANGE', KEYS[2], 8, fin))\n"
                                                  "end\n"
                                                  "e = e or bad(call('RENAME', KEYS[2], k))\n"
                                                  "if e then call('UNLINK', KEYS[2]) end\n"
                                                  "return e or 0\n";

/* ARGV: token, verdict (a front, or empty), its life in ms, ms that a key without body stays. */
static const char release_text[] =
    PRELUDE("{-9, now}") WRITE "if not holds then return {-9, now} end\n"
                               "local e\n"
                               "if ARGV[2] ~= '' then\n"
                               "  length = tonumber(ARGV[3])\n"
                               "  state, token, since, till = 2, sub(zeros, 2), now, now + length\n"
                               "  fails, parts = sub(ARGV[2], 23, 24), sub(ARGV[2], 89)\n"
                               "  e = write(tonumber(ARGV[4]))\n"
                               "elseif payload then\n"
                               "  state = 0\n"
                               "  e = write(1)\n"
                               "else\n"
                               "  e = bad(call('UNLINK', k))\n"
                               "end\n"
                               "return e or {0, now}\n";

/* ARGV: token, lease ms. */
static const char extend_text[] =
    PRELUDE("{-9, now}") DATE WRITE "if not holds then return {-9, now} end\n"
                                    "length = tonumber(ARGV[2])\n"
                                    "till, since = now + length, math.min(since, now)\n"
                                    "return write(1) or {0, now}\n";

static const char expire_text[] = PRELUDE("bad(call('UNLINK', k)) or {0, now}") WRITE
    "if not payload then return bad(call('UNLINK', k)) or {0, now} end\n"
    "state = 0\n"
    "if flags % 2 == 0 then flags = flags + 1 end\n"
    "return write(1) or {0, now}\n";

/* ARGV: token, ttl ms. */
static const char renew_text[] =
    PRELUDE("{-9, now}") WRITE "if not holds then return {-9, now} end\n"
                               "if not payload then return {-4, now} end\n"
                               "local e = bad(call('PEXPIRE', k, ARGV[2]))\n"
                               "state, flags, fails, fin = 0, 0, '\\0\\0', now + ARGV[2]\n"
                               "return e or write(1) or {0, now}\n";

/* Leaves foreign values alone, and deletes a record of a later corral too. */
static const char invalidate_text[] =
    "local t = redis.pcall('TIME')\n"
    "local now = t.err and 0 or t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local got = redis.pcall('GETRANGE', KEYS[1], 0, 3)\n"
    "if type(got) == 'table' then return got end\n"
    "if got == '' and redis.pcall('PTTL', KEYS[1]) ~= -2 then return {-12, now} end\n"
    "if got ~= '' and (#got < 4 or string.sub(got, 1, 3) ~= 'crl') then return {-12, now} end\n"
    "local r = redis.pcall('UNLINK', KEYS[1])\n"
    "return type(r) == 'table' and r.err and r or {0, now}\n";

static const crl_redis_script scripts[] = {
    [CRL_REDIS_CLAIM] = {"137cf4e1427d013fb3206dd6ec00e5d5bd1be3af", claim_text},
    [CRL_REDIS_SETTLE] = {"084064a6f0933066ad80f4be7cc5a28505d5c1cf", settle_text},
    [CRL_REDIS_STAGE] = {"8334f5e410851b5dad9e2f857c697cc9752b7ac2", stage_text},
    [CRL_REDIS_RELEASE] = {"eacceee85799dfbd9e534cbc769dd4103463667d", release_text},
    [CRL_REDIS_EXTEND] = {"c0667cb34682a4264397762bc2e038d154a422c6", extend_text},
    [CRL_REDIS_EXPIRE] = {"cb3ba867d51e5f116d428217e5005a70d0355c88", expire_text},
    [CRL_REDIS_INVALIDATE] = {"aea2782cb9f52e9acbe8328e4e75235016ff5594", invalidate_text},
    [CRL_REDIS_RENEW] = {"de9b6912a46a8950d4d82f7f11c55462c059b377", renew_text},
};

const crl_redis_script *crl_redis_script_get(crl_redis_script_id id) {
  return id >= CRL_REDIS_LOCK ? crl_redis_lock_script_get(id) : &scripts[id];
}
