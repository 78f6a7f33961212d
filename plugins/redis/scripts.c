/* scripts.c: what each verb does to a record, in Lua, run by the server.
 *
 * They say what src/record.c says (crl_record_decide), with two things of Redis' own. A settled record has life_end 0: the
 * key's TTL is its life. When a lease or a verdict outlasts the payload, the TTL is lengthened and life_end says when
 * the payload ends. And a key never is without TTL.
 *
 * Only redis.pcall is used, and its errors are returned as they are: so the first word of an error stays the first,
 * in Redis 6 as in Redis 7. Every script answers {status, now} (CLAIM: {status, now, pttl, record, same}).
 *
 * A script that has written may go on writing when the server is out of memory; PEXPIRE is never refused for
 * memory. Hence PEXPIRE comes first: a lease can always be extended and given back. */
#include "redis.h"

/* The key as it stands. ARGV[1] is the token for all scripts that have one. */
#define PRELUDE                                                                                     \
  "local call, k = redis.pcall, KEYS[1]\n"                                                          \
  "local t = call('TIME')\n"                                                                        \
  "if t.err then return t end\n"                                                                    \
  "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"                                             \
  "local ttl = call('PTTL', k)\n"                                                                   \
  "if type(ttl) == 'table' then return ttl end\n"                                                   \
  "local got = call('GETRANGE', k, 0, 135)\n"                                                       \
  "if type(got) == 'table' then return got end\n"                                                   \
  "local absent = ttl == -2\n"                                                                      \
  "local layout = '<c4BBc2c16i8i8i8c4c4c4c4c64'\n"                                                  \
  "local magic, state, flags, gap, token, till, since, life, cost, code, fails, gap2, note\n"       \
  "local function zeros(n) return string.rep(string.char(0), n) end\n"                              \
  "local function free()\n"                                                                         \
  "  state, token, till, since, cost, code, note = 0, zeros(16), 0, 0, zeros(4), zeros(4), zeros(64)\n" \
  "end\n"                                                                                           \
  "if absent then\n"                                                                                \
  "  magic, flags, gap, life, fails, gap2 = 'crl1', 0, zeros(2), 0, zeros(4), zeros(4)\n"           \
  "  free()\n"                                                                                      \
  "else\n"                                                                                          \
  "  if #got < 128 or string.sub(got, 1, 4) ~= 'crl1' or string.byte(got, 5) > 2 then return {-12, now} end\n" \
  "  magic, state, flags, gap, token, till, since, life, cost, code, fails, gap2, note =\n"         \
  "    struct.unpack(layout, got)\n"                                                                \
  "end\n"                                                                                           \
  "local gone = flags % 4 >= 2\n"                                                                   \
  "local mark = gone and life > now\n"                                                              \
  "local payload = not gone and #got > 128 and (life == 0 or life > now)\n"                         \
  "local holds = state == 1 and token == ARGV[1]\n"                                                 \
  "local function bad(r) return type(r) == 'table' and r.err and r or nil end\n"

/* Writes the header back; a key without payload is the header alone and lives `keep` ms, or as long as its mark. Returns
 * an error or nil. */
#define WRITE                                                                                       \
  "local head\n"                                                                                    \
  "local function pack()\n"                                                                         \
  "  head = struct.pack(layout, magic, state, flags, zeros(2), token, till, since, life,\n"         \
  "    cost, code, fails, zeros(4), note)\n"                                                        \
  "end\n"                                                                                           \
  "local function write(keep)\n"                                                                    \
  "  local e\n"                                                                                     \
  "  if payload then\n"                                                                             \
  "    local left = ttl\n"                                                                          \
  "    if life > 0 then left = life - now end\n"                                                    \
  "    life = 0\n"                                                                                  \
  "    ttl = left\n"                                                                                \
  "    if state > 0 and left >= 0 and till - now > left then life, ttl = now + left, till - now end\n" \
  "    if ttl >= 0 then e = bad(call('PEXPIRE', k, math.max(ttl, 1))) end\n"                        \
  "    pack()\n"                                                                                    \
  "    return e or bad(call('SETRANGE', k, 0, head))\n"                                             \
  "  end\n"                                                                                         \
  "  if mark then keep = math.max(keep, life - now) else life, flags = 0, 0 end\n"                  \
  "  ttl = math.max(keep, 1)\n"                                                                     \
  "  if not absent then e = bad(call('PEXPIRE', k, ttl)) end\n"                                     \
  "  pack()\n"                                                                                      \
  "  return e or bad(call('SET', k, head, 'PX', ttl))\n"                                            \
  "end\n"

/* ARGV: token, lease ms, wish (a header, or empty), seen (a stamp, or empty), over (a token, or empty). */
static const char claim_text[] = PRELUDE WRITE
    "local status, whole = 0, #got > 128\n"
    "local over = state == 1 and token == ARGV[5]\n"
    "if state > 0 and till > now and not over then\n"
    "  if not holds then status = -8 end\n"
    "  head = string.sub(got, 1, 128)\n"
    "else\n"
    "  state, token, since, till = 1, ARGV[1], now, now + ARGV[2]\n"
    "  cost, note = zeros(4), zeros(64)\n"
    "  if ARGV[3] ~= '' then cost, note = string.sub(ARGV[3], 49, 52), string.sub(ARGV[3], 65, 128) end\n"
    "  whole = payload\n"
    "  local e = write(tonumber(ARGV[2]))\n"
    "  if e then return e end\n"
    "end\n"
    "local same = payload and ARGV[4] ~= '' and string.sub(got, 129, 136) == ARGV[4]\n"
    "if whole and not same then\n"
    "  head = call('GET', k)\n"
    "  if bad(head) then return head end\n"
    "end\n"
    "return {status, now, ttl, head, same and 1 or 0}\n";

/* ARGV: token, ttl ms, record. */
static const char settle_text[] = PRELUDE
    "if not holds then return {-9, now} end\n"
    "return bad(call('SET', k, ARGV[3], 'PX', ARGV[2])) or {0, now}\n";

/* KEYS[2] is the staged record. ARGV: token, ttl ms. Answers 1 when nothing is staged. */
static const char stage_text[] = PRELUDE
    "if not holds then\n"
    "  call('UNLINK', KEYS[2])\n"
    "  return {-9, now}\n"
    "end\n"
    "local e = call('PEXPIRE', KEYS[2], ARGV[2])\n"
    "if e == 0 then return {1, now} end\n"
    "e = bad(e) or bad(call('RENAME', KEYS[2], k))\n"
    "if e then call('UNLINK', KEYS[2]) end\n"
    "return e or {0, now}\n";

/* ARGV: token, verdict (a header, or empty), how long it rules, how long a key without payload stays. */
static const char release_text[] = PRELUDE WRITE
    "if not holds then return {-9, now} end\n"
    "free()\n"
    "local e\n"
    "if ARGV[2] ~= '' then\n"
    "  state, since, till = 2, now, now + ARGV[3]\n"
    "  code, fails, note = string.sub(ARGV[2], 53, 56), string.sub(ARGV[2], 57, 60), string.sub(ARGV[2], 65, 128)\n"
    "  e = write(math.max(tonumber(ARGV[3]), tonumber(ARGV[4])))\n"
    "elseif payload or mark then\n"
    "  e = write(1)\n"
    "else\n"
    "  e = bad(call('UNLINK', k))\n"
    "end\n"
    "return e or {0, now}\n";

/* ARGV: token, lease ms. */
static const char extend_text[] = PRELUDE WRITE
    "if not holds then return {-9, now} end\n"
    "till = now + ARGV[2]\n"
    "return write(tonumber(ARGV[2])) or {0, now}\n";

static const char expire_text[] = PRELUDE WRITE
    "if absent then return {0, now} end\n"
    "if not payload and not mark then return bad(call('UNLINK', k)) or {0, now} end\n"
    "free()\n"
    "if payload and flags % 2 == 0 then flags = flags + 1 end\n"
    "return write(1) or {0, now}\n";

/* ARGV: token, ttl ms. */
static const char renew_text[] = PRELUDE WRITE
    "if not holds then return {-9, now} end\n"
    "if not payload then return {-4, now} end\n"
    "free()\n"
    "flags, fails, life, ttl = flags - flags % 2, zeros(4), 0, tonumber(ARGV[2])\n"
    "return write(1) or {0, now}\n";

/* ARGV: how long to remember it. Whatever stands in the way of the mark, such as want of memory, must not keep the value
 * alive. */
static const char invalidate_text[] = PRELUDE WRITE
    "local keep = tonumber(ARGV[1])\n"
    "if keep > 0 then\n"
    "  if mark then keep = math.max(keep, life - now) end\n"
    "  free()\n"
    "  flags, life, fails, payload, mark = 2, now + keep, zeros(4), false, true\n"
    "  if not write(keep) then return {0, now} end\n"
    "end\n"
    "return bad(call('UNLINK', k)) or {0, now}\n";

static const crl_redis_script scripts[] = {
    [CRL_REDIS_CLAIM] = {"73b9c5c815c0fcf4307e2f086590b0027c0bb6dd", claim_text},
    [CRL_REDIS_SETTLE] = {"fb5caa7219e78d947c938759047076cf2d0be8e0", settle_text},
    [CRL_REDIS_STAGE] = {"926db8c1be1e521a6acf397f3bdf0685321188e2", stage_text},
    [CRL_REDIS_RELEASE] = {"33a2c8309603c91dcfdd082fd2c058e50c9bdfc9", release_text},
    [CRL_REDIS_EXTEND] = {"b23e98967d118de6c840415c2bb0550f4700b51e", extend_text},
    [CRL_REDIS_EXPIRE] = {"7a0033b12e2fef48b85d80f1df4141017ab542ff", expire_text},
    [CRL_REDIS_INVALIDATE] = {"b83f05c0a84d3ce08bc9e015e9d3c419bf272309", invalidate_text},
    [CRL_REDIS_RENEW] = {"20e3a291fe89a342185a1922c7adbffa53c11186", renew_text},
};

const crl_redis_script *crl_redis_script_get(crl_redis_script_id id) {
  return id >= CRL_REDIS_LOCK ? crl_redis_lock_script_get(id) : &scripts[id];
}
