package harness

import (
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/price"
)

// prices is the price table, read when it is first needed.
type prices struct {
	override []byte // replaces entries of the built-in table
	table    *price.Table
}

// cost estimates what u costs; false for a model without a price.
func (p *prices) cost(model string, u tallyman.Usage) (float64, bool) {
	if p.table == nil {
		table, err := price.Load(p.override)
		if err != nil {
			return 0, false
		}
		p.table = table
	}
	return p.table.Cost(model, u)
}
