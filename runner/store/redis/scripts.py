"""What the Redis store says to the server: one script per call, so that each is done as a whole or not at all.

A stream is a Redis stream whose ids are `N-0`; a register is one with a single entry, whose id is its version. Both can be waited
for by XREAD. An entry has one field, named after the checksum of its payload. How far a stream was trimmed is written down, so
that entries that others removed are missed. What is volatile is kept from the append-only file by `set_repl` and expires.

Each script returns a list whose first element says what happened: `done`, or why not. The server takes every key in KEYS of a
script that may write for one that is written: what agents and commands send (APPEND, HOLDER) names in ARGV what it only reads.
"""

import hashlib
from dataclasses import dataclass

_PRELUDE = """
local function id(number) return string.format('%.0f-0', number) end

local function number_of(entry_id) return tonumber(string.match(entry_id, '^(%d+)')) end

local function last_of(stream)
  if redis.call('EXISTS', stream) == 0 then return 0 end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return number_of(info[i + 1]) end
  end
end

local function fenced(lease, holder, token)
  if holder == '' then return nil end
  local row = redis.call('HMGET', lease, 'holder', 'token')
  if row[1] == holder and row[2] == token then return nil end
  return {'fenced', row[1] or '', row[2] or '0'}
end

local function now(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The lease's time left, in us. A restarted server grants the holder one time to live to come back; a clock set back prolongs
-- a lease by no more than that. The first call that sees either records it, so that later calls do not start the time again:
-- a user who may not write sees no new time granted.
local function left_of(lease, expires, ttl, began, life, time)
  local left, most = tonumber(expires) - time, tonumber(ttl)
  if began == life and left <= most then return left end
  local done = redis.pcall('HSET', lease, 'expires', string.format('%.0f', time + most), 'life', life)
  return type(done) == 'table' and math.min(left, most) or most
end
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the hash that the server keeps it under. `changes`: whether it may write."""

    source: str
    sha: str
    changes: bool


def _script(body: str, *, changes: bool = True) -> Script:
    source = _PRELUDE + body
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), changes)


# KEYS: meta. Which store this is, and the server's instance id (field `life`: 1, 2, ..., one for each start).
HELLO = _script(
    """
local row = redis.call('HMGET', KEYS[1], 'id', 'life', 'run', 'schema')
return {'done', row[1] or '', row[2] or '0', row[3] or '', row[4] or '0'}
""",
    changes=False,
)

# KEYS: meta. ARGV: run, id, schema, how the keys of an instance begin. Counts a start of the server; deletes the volatile keys of
# the instance before, which a rewritten append-only file may have restored.
BEGIN = _script(
    """
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then
  redis.call('HSETNX', KEYS[1], 'id', ARGV[2])
  redis.call('HSETNX', KEYS[1], 'schema', ARGV[3])
  redis.call('HSET', KEYS[1], 'run', ARGV[1])
  local life = redis.call('HINCRBY', KEYS[1], 'life', 1)
  local before = ARGV[4] .. string.format('%.0f', life - 1) .. ':'
  redis.call('DEL', before .. 'meta', before .. 'names', before .. 'trims')
end
local row = redis.call('HMGET', KEYS[1], 'id', 'life', 'run', 'schema')
return {'done', row[1], row[2], row[3], row[4]}
"""
)

# KEYS: stream. ARGV: stream's name, at (0: at the end), seen, limit, base ('': durable), holder, token, keep, slack, expiry in
# ms, trims, lease; then field and payload of each entry.
APPEND = _script(
    """
local lost = fenced(ARGV[12], ARGV[6], ARGV[7])
if lost then return lost end
local volatile = ARGV[5] ~= ''
local last = last_of(KEYS[1])
if volatile and last == 0 then last = tonumber(ARGV[5]) end
if last < tonumber(ARGV[3]) then return {'less', last} end
local at = tonumber(ARGV[2])
if at > 0 and at ~= last + 1 then
  local num = (#ARGV - 12) / 2
  local found = redis.call('XRANGE', KEYS[1], id(at), id(at + num - 1))
  local same = #found == num
  for i = 1, #found do
    local entry = found[i][2]
    same = same and entry[1] == ARGV[11 + 2 * i] and entry[2] == ARGV[12 + 2 * i]
  end
  if same then return {'done', at + num - 1} end
  return {'differs', last, redis.call('HGET', ARGV[11], ARGV[1]) or '0'}
end
for i = 14, #ARGV, 2 do
  if #ARGV[i] > tonumber(ARGV[4]) then return {'large', #ARGV[i]} end
end
-- Beyond 2^53 - 1 a script's numbers are not exact; only others can have filled it so far.
if last + #ARGV > 9007199254740991 then return {'full', last} end
if volatile then redis.set_repl(redis.REPL_NONE) end
local before = last
for i = 13, #ARGV, 2 do
  last = last + 1
  redis.call('XADD', KEYS[1], id(last), ARGV[i], ARGV[i + 1])
end
if volatile and last > before then
  local slack = tonumber(ARGV[9])
  if math.floor(last / slack) > math.floor(before / slack) then
    redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[8])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[10])
end
return {'done', last}
"""
)

# KEYS: stream, trims, lease. ARGV: stream's name, through, '1' if volatile, holder, token.
TRIM = _script(
    """
local lost = fenced(KEYS[3], ARGV[4], ARGV[5])
if lost then return lost end
local last = last_of(KEYS[1])
local through = math.min(tonumber(ARGV[2]), last)
local trimmed = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0')
if through <= trimmed then return {'done'} end
if ARGV[3] == '1' then
  redis.set_repl(redis.REPL_NONE)
else
  redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f', through))
end
redis.call('XTRIM', KEYS[1], 'MINID', id(through + 1))
return {'done'}
"""
)

# KEYS: meta, meta of this instance, trims, then streams, then registers. ARGV: number of streams, limit, room in bytes; then
# name and cursor of each stream (name '' for a volatile one); then the version of each register.
# Returns both counts of versions; last, trimmed and entries of each stream; the newest entry of each register, if newer.
LOOK = _script(
    """
local room = tonumber(ARGV[3])
local limit = tonumber(ARGV[2])

local function size_of(entry)
  local bytes = 0
  for _, each in ipairs(entry[2]) do bytes = bytes + #each end
  return bytes
end

-- A few at a time, as many as their sizes so far allow: the sizes of the next ones are unknown.
local function entries_after(stream, number)
  local found, from, largest = {}, string.format('(%.0f-18446744073709551615', number), 0
  while #found < limit do
    local chunk = 1
    if #found > 0 then chunk = math.max(1, math.min(256, limit - #found, math.floor(room / (4 * largest + 64)))) end
    local entries = redis.call('XRANGE', stream, from, '+', 'COUNT', chunk)
    for _, entry in ipairs(entries) do
      local bytes = size_of(entry)
      found[#found + 1] = entry
      room = room - bytes
      largest = math.max(largest, bytes)
      if room <= 0 then return found end
    end
    if #entries < chunk then return found end
    from = '(' .. entries[#entries][1]
  end
  return found
end

local num_streams = tonumber(ARGV[1])
local streams, registers = {}, {}
for i = 1, num_streams do
  local stream, name, cursor = KEYS[3 + i], ARGV[2 + 2 * i], tonumber(ARGV[3 + 2 * i])
  local last, trimmed = last_of(stream), 0
  if name ~= '' then trimmed = tonumber(redis.call('HGET', KEYS[3], name) or '0') end
  local start = cursor
  if cursor > last or cursor < trimmed then start = trimmed end
  local entries = {}
  if last > start and limit > 0 then entries = entries_after(stream, start) end
  streams[i] = {last, trimmed, entries}
end
for i = num_streams + 4, #KEYS do
  local version = ARGV[i + num_streams]
  registers[#registers + 1] =
    redis.call('XREVRANGE', KEYS[i], '+', '(' .. version .. '-18446744073709551615', 'COUNT', 1)
end
local versions = {
  redis.call('HGET', KEYS[1], 'version') or '0', redis.call('HGET', KEYS[2], 'version') or '0'}
return {'done', versions, streams, registers}
""",
    changes=False,
)

# KEYS: meta, names, lease, then the registers. ARGV: seen, base of versions, '1' if volatile, holder, token, limit, expiry in ms;
# then name, field and payload of each register. A register's key is replaced each time, whatever it held.
PUT = _script(
    """
local lost = fenced(KEYS[3], ARGV[4], ARGV[5])
if lost then return lost end
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or ARGV[2])
if version < tonumber(ARGV[1]) then return {'less', version} end
for i = 4, #KEYS do
  if #ARGV[3 * i - 2] > tonumber(ARGV[6]) then return {'large', #ARGV[3 * i - 2]} end
end
if #KEYS == 3 then return {'done', version} end
local volatile = ARGV[3] == '1'
if volatile then redis.set_repl(redis.REPL_NONE) end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version + #KEYS - 3))
for i = 4, #KEYS do
  version = version + 1
  if redis.call('DEL', KEYS[i]) == 0 then redis.call('ZADD', KEYS[2], 0, ARGV[3 * i - 4]) end
  redis.call('XADD', KEYS[i], id(version), ARGV[3 * i - 3], ARGV[3 * i - 2])
  if volatile then redis.call('PEXPIRE', KEYS[i], ARGV[7]) end
end
return {'done', version}
"""
)

# KEYS: names, lease, register. ARGV: name, '1' if volatile, holder, token.
DELETE = _script(
    """
local lost = fenced(KEYS[2], ARGV[3], ARGV[4])
if lost then return lost end
if ARGV[2] == '1' then redis.set_repl(redis.REPL_NONE) end
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
return {'done'}
"""
)

# KEYS: meta, names. ARGV: prefix of names, how the registers' keys begin. Names are UTF-8, which has no byte 255.
LIST = _script(
    """
local from, to = '-', '+'
if ARGV[1] ~= '' then from, to = '[' .. ARGV[1], '(' .. ARGV[1] .. string.char(255) end
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], from, to)) do
  local entries = redis.call('XREVRANGE', ARGV[2] .. name, '+', '-', 'COUNT', 1)
  if entries[1] then found[#found + 1] = {name, entries[1]} end
end
return {'done', redis.call('HGET', KEYS[1], 'version') or '0', found}
""",
    changes=False,
)

# KEYS: lease, meta. ARGV: holder, time to live in us, now in us ('': by the server's clock).
ACQUIRE = _script(
    """
local row = redis.call('HMGET', KEYS[1], 'holder', 'token', 'expires', 'ttl', 'life')
local life = redis.call('HGET', KEYS[2], 'life') or '0'
local time = now(ARGV[3])
if row[1] and row[1] ~= ARGV[1] then
  local left = left_of(KEYS[1], row[3], row[4], row[5], life, time)
  if left > 0 then return {'held', row[1], left} end
end
local token = tonumber(row[2] or '0') + 1
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'token', string.format('%.0f', token), 'ttl', ARGV[2],
  'expires', string.format('%.0f', time + tonumber(ARGV[2])), 'life', life)
return {'done', token}
"""
)

# KEYS: lease, meta. ARGV: holder, token, time to live in us, now in us.
RENEW = _script(
    """
local lost = fenced(KEYS[1], ARGV[1], ARGV[2])
if lost then return lost end
redis.call('HSET', KEYS[1], 'ttl', ARGV[3], 'life', redis.call('HGET', KEYS[2], 'life') or '0',
  'expires', string.format('%.0f', now(ARGV[4]) + tonumber(ARGV[3])))
return {'done'}
"""
)

# KEYS: lease. ARGV: holder, token ('': whichever). The token stays, so that it never falls.
FREE = _script(
    """
local row = redis.call('HMGET', KEYS[1], 'holder', 'token')
if row[1] ~= ARGV[1] or (ARGV[2] ~= '' and row[2] ~= ARGV[2]) then return {'done', 0} end
redis.call('HDEL', KEYS[1], 'holder')
return {'done', 1}
"""
)

# ARGV: lease, meta, now in us.
HOLDER = _script(
    """
local row = redis.call('HMGET', ARGV[1], 'holder', 'token', 'expires', 'ttl', 'life')
if not row[1] then return {'done'} end
local life = redis.call('HGET', ARGV[2], 'life') or '0'
return {'done', row[1], row[2], math.max(0, left_of(ARGV[1], row[3], row[4], row[5], life, now(ARGV[3])))}
"""
)
