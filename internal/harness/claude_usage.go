package harness

import (
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/tallyman-dev/tallyman"
)

// claudeUsage counts what a claude process has used. A result tells totals
// since the process began; what messages tell since then is added to it.
type claudeUsage struct {
	model string // of messages that name none

	told     tallyman.Usage // as of the last result
	live     tallyman.Usage // of the messages since
	unpriced int            // messages since whose model has no price
	messages map[string]*claudeMessage
	prices   prices
}

// claudeMessage is what is known of one call of the model.
type claudeMessage struct {
	model   string
	usage   tallyman.Usage
	settled bool // a result has counted it
	priced  bool
}

// see takes the usage that a line tells about a message, and reports whether
// it changed what is known. Lines about one message repeat its usage; the
// highest figures are right.
func (c *claudeUsage) see(id, model string, usage []byte, ofMain bool) bool {
	if id == "" || model == "<synthetic>" {
		return false
	}
	m := c.messages[id]
	if m == nil {
		if model == "" {
			model = c.model
		}
		m = &claudeMessage{model: strings.Clone(model), priced: true}
		if c.messages == nil {
			c.messages = map[string]*claudeMessage{}
		}
		c.messages[strings.Clone(id)] = m
		if ofMain {
			c.live.Turns++
		}
	}
	if m.settled || len(usage) == 0 {
		return false
	}
	return c.update(m, tokens(usage))
}

func (c *claudeUsage) update(m *claudeMessage, seen tallyman.Usage) bool {
	now := tallyman.Usage{
		InputTokens:      max(m.usage.InputTokens, seen.InputTokens),
		OutputTokens:     max(m.usage.OutputTokens, seen.OutputTokens),
		CacheReadTokens:  max(m.usage.CacheReadTokens, seen.CacheReadTokens),
		CacheWriteTokens: max(m.usage.CacheWriteTokens, seen.CacheWriteTokens),
		CostUSD:          m.usage.CostUSD,
	}
	if now == m.usage {
		return false
	}
	cost, priced := c.prices.cost(m.model, now)
	now.CostUSD = cost
	if m.priced && !priced {
		c.unpriced++
	}
	m.priced = priced
	c.live.InputTokens += now.InputTokens - m.usage.InputTokens
	c.live.OutputTokens += now.OutputTokens - m.usage.OutputTokens
	c.live.CacheReadTokens += now.CacheReadTokens - m.usage.CacheReadTokens
	c.live.CacheWriteTokens += now.CacheWriteTokens - m.usage.CacheWriteTokens
	c.live.CostUSD += now.CostUSD - m.usage.CostUSD
	m.usage = now
	return true
}

// total is everything so far.
func (c *claudeUsage) total() tallyman.Usage {
	live := c.live
	switch {
	case live.Tokens() == 0:
	case c.unpriced > 0:
		live.CostSource = tallyman.CostUnknown
	default:
		live.CostSource = tallyman.CostEstimated
	}
	return c.told.Plus(live)
}

// settle takes the totals of a result. Tokens are those of modelUsage, which
// counts everything since the process began, sub-agents too; a result without
// it tells only of its own turn, which is added.
func (c *claudeUsage) settle(line string) {
	var sum tallyman.Usage
	var cost float64
	priced, costed := true, false
	gjson.Get(line, "modelUsage").ForEach(func(model, u gjson.Result) bool {
		one := tallyman.Usage{
			InputTokens:      count(u.Get("inputTokens")),
			OutputTokens:     count(u.Get("outputTokens")),
			CacheReadTokens:  count(u.Get("cacheReadInputTokens")),
			CacheWriteTokens: count(u.Get("cacheCreationInputTokens")),
		}
		sum = sum.Plus(one)
		usd, ok := money(u.Get("costUSD"))
		if !ok {
			usd, ok = c.prices.cost(model.String(), one)
			priced = priced && ok
		} else {
			costed = true
		}
		cost += usd
		return true
	})
	turns := c.told.Turns + int(count(gjson.Get(line, "num_turns")))
	byModel := sum.Tokens() > 0
	if !byModel {
		sum = tokens([]byte(gjson.Get(line, "usage").Raw))
		cost, priced = c.prices.cost(c.model, sum)
		sum.InputTokens += c.told.InputTokens
		sum.OutputTokens += c.told.OutputTokens
		sum.CacheReadTokens += c.told.CacheReadTokens
		sum.CacheWriteTokens += c.told.CacheWriteTokens
		cost += c.told.CostUSD
	}
	sum.Turns = turns
	sum.CostUSD, sum.CostSource = c.cost(line, cost, costed, priced, sum.Tokens())
	c.told = sum
	c.forget()
}

// cost takes the harness's word, else what was computed, else says unknown.
func (c *claudeUsage) cost(line string, computed float64, costed, priced bool, tokens int64) (float64, tallyman.CostSource) {
	for _, key := range []string{"total_cost_usd", "cost_usd"} {
		if usd, ok := money(gjson.Get(line, key)); ok {
			return usd, tallyman.CostHarness
		}
	}
	switch {
	case tokens == 0:
		return 0, c.told.CostSource
	case !priced:
		return computed, tallyman.CostUnknown
	case costed:
		return computed, tallyman.CostHarness
	default:
		return computed, tallyman.CostEstimated
	}
}

// forget starts counting anew. Messages of the turn that has ended are known
// for one turn more: late lines about them must not count again.
func (c *claudeUsage) forget() {
	for id, m := range c.messages {
		if m.settled {
			delete(c.messages, id)
		}
		m.settled = true
	}
	c.live, c.unpriced = tallyman.Usage{}, 0
}

// tokens reads the usage of a message or of a turn.
func tokens(usage []byte) (u tallyman.Usage) {
	for key, value := range fields(usage) {
		switch string(key) {
		case "input_tokens":
			u.InputTokens = count(gjson.ParseBytes(value))
		case "output_tokens":
			u.OutputTokens = count(gjson.ParseBytes(value))
		case "cache_read_input_tokens":
			u.CacheReadTokens = count(gjson.ParseBytes(value))
		case "cache_creation_input_tokens":
			u.CacheWriteTokens = count(gjson.ParseBytes(value))
		}
	}
	return u
}

// count reads a number of things, 0 for what is none. Fractions are dropped.
func count(v gjson.Result) int64 {
	f := v.Float()
	if !(f > 0) {
		return 0
	}
	return int64(min(f, 1<<50))
}

// money reads an amount of dollars.
func money(v gjson.Result) (float64, bool) {
	if v.Type != gjson.Number || !(v.Num >= 0) || math.IsInf(v.Num, 0) {
		return 0, false
	}
	return v.Num, true
}
