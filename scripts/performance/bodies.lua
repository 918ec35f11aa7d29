-- Chat requests for wrk. KIND (environment): "same" repeats one body of LENGTH bytes, "own" sends another prompt of LENGTH
-- characters each time, "shared" begins with one of 64 prefixes of 8 KB that LENGTH own characters follow. ANSWER holds the rest
-- of the body, from the comma after the messages; SALT makes runs differ.
-- Everything is made before the clock starts: a request costs two cuts and a concatenation, however long it is.

local kind, length = os.getenv("KIND"), tonumber(os.getenv("LENGTH"))
local PREFIXES, PREFIX_LENGTH, RESERVE = 64, 8192, 1024 * 1024
local head = '{"model":"' .. os.getenv("MODEL") .. '","messages":[{"role":"user","content":"'
local tail = '"}]' .. os.getenv("ANSWER") .. "}"
if kind == "same" then length = length - #head - #tail end
local reserve, prefixes, salt, sent = "", {}, "", 0

local function prose(characters)
  local letters = {}
  for at = 1, characters do
    local draw = math.random(1, 31)
    letters[at] = draw > 26 and " " or string.char(96 + draw)
  end
  return table.concat(letters)
end

-- A number that never comes again, so that no two prompts share a beginning, and a cut of the reserve.
local function own()
  sent = sent + 1
  local mark = string.format("%08x-%s ", (sent * 2654435761) % 4294967296, salt)
  local from = math.random(1, RESERVE - length)
  return mark .. reserve:sub(from, from + length - #mark - 1)
end

-- Bodies of a kind have one length, so their headers are made once.
local function framed(characters)
  local body = head .. string.rep("x", characters) .. tail
  local whole = wrk.format("POST", "/v1/chat/completions", { ["content-type"] = "application/json" }, body)
  return whole:sub(1, #whole - characters - #tail)
end

function init()
  math.randomseed(20240917)
  reserve = prose(kind == "same" and length or RESERVE)
  if kind == "shared" then
    for at = 1, PREFIXES do prefixes[at] = prose(PREFIX_LENGTH) end
  end
  salt = os.getenv("SALT")
  math.randomseed(tonumber(salt))
  local begin = framed(length + (kind == "shared" and PREFIX_LENGTH or 0))
  if kind == "same" then
    local repeated = begin .. reserve .. tail
    request = function() return repeated end
  elseif kind == "own" then
    request = function() return begin .. own() .. tail end
  else
    request = function() return begin .. prefixes[math.random(1, PREFIXES)] .. own() .. tail end
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('RESULT {"answers":%d,"microseconds":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,"errors":%d}\n',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
