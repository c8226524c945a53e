-- For wrk: sends the requests of a folder in turn, and prints what it measured as JSON (bench/runs/serving.py).
--     wrk -t1 -c CONNECTIONS -d TIMEs -s serving.lua URL -- FOLDER NUMBER [count]
-- `count` counts answers by their status, which costs time.
local requests, at = {}, 0
local thread

function setup(of)
    thread = of
end

function init(args)
    for number = 0, tonumber(args[2]) - 1 do
        local file = assert(io.open(args[1] .. "/" .. number, "rb"))
        requests[number + 1] = file:read("*a")
        file:close()
    end
    statuses = ""
    if args[3] == "count" then
        counts = {}
        response = function(status)
            counts[status] = (counts[status] or 0) + 1
            statuses = ""
            for of, count in pairs(counts) do
                statuses = statuses .. (statuses == "" and "" or ", ") .. '"' .. of .. '": ' .. count
            end
        end
    end
end

function request()
    at = at % #requests + 1
    return requests[at]
end

function done(summary, latency)
    local wrong = summary.errors
    io.write(string.format(
        '{"answers": %d, "seconds": %.6f, "p50": %.6f, "p99": %.6f, "most": %.6f, "refused": %d, "broken": %d, '
            .. '"late": %d, "statuses": {%s}}\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
        latency.max / 1e6, wrong.status, wrong.connect + wrong.read + wrong.write, wrong.timeout,
        thread:get("statuses")))
end
