package tallyman

// CostSource says where a cost comes from.
type CostSource string

// Where a cost comes from: the harness said it, we computed it from the price
// table, or nobody knows.
const (
	CostHarness   CostSource = "harness"
	CostEstimated CostSource = "estimated"
	CostUnknown   CostSource = "unknown"
)

// Usage counts what an attempt or a run used, as reported by the harness.
type Usage struct {
	InputTokens      int64      `json:"input_tokens"`
	OutputTokens     int64      `json:"output_tokens"`
	CacheReadTokens  int64      `json:"cache_read_tokens"`
	CacheWriteTokens int64      `json:"cache_write_tokens"`
	CostUSD          float64    `json:"cost_usd"`
	CostSource       CostSource `json:"cost_source,omitempty"`
	Turns            int        `json:"turns"`
}

// Tokens is the sum of all kinds; limits.maxTokens is compared with it.
func (u Usage) Tokens() int64 {
	return u.InputTokens + u.OutputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

// Plus adds the usage of another attempt. The weaker source of cost wins, so
// that a sum is never called more certain than its parts.
func (u Usage) Plus(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.CostUSD += v.CostUSD
	u.Turns += v.Turns
	if weight(v.CostSource) > weight(u.CostSource) {
		u.CostSource = v.CostSource
	}
	return u
}

func weight(s CostSource) int {
	switch s {
	case CostHarness:
		return 1
	case CostEstimated:
		return 2
	case CostUnknown:
		return 3
	default:
		return 0
	}
}
