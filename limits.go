package tallyman

import (
	"errors"
	"fmt"
	"time"
)

// DefaultDeadline bounds an attempt whose agent and request name none.
const DefaultDeadline = Duration(2 * time.Hour)

// Limits bound an attempt (deadline, idle, tool, turns) or the run over all
// its attempts (budget, tokens). Nil is "not given"; zero is "none".
type Limits struct {
	Deadline  *Duration `json:"deadline,omitempty"`  // from agent.started to the end
	Idle      *Duration `json:"idle,omitempty"`      // silence on stdout, paused while a tool is open
	Tool      *Duration `json:"tool,omitempty"`      // one tool call
	MaxTurns  *int      `json:"maxTurns,omitempty"`  // turns of one attempt
	BudgetUSD *float64  `json:"budgetUSD,omitempty"` // US dollars, over all attempts
	MaxTokens *int64    `json:"maxTokens,omitempty"` // tokens of all kinds, over all attempts
}

// Over returns l with what it does not give taken from base.
func (l Limits) Over(base Limits) Limits {
	l.Deadline = first(l.Deadline, base.Deadline)
	l.Idle = first(l.Idle, base.Idle)
	l.Tool = first(l.Tool, base.Tool)
	l.MaxTurns = first(l.MaxTurns, base.MaxTurns)
	l.BudgetUSD = first(l.BudgetUSD, base.BudgetUSD)
	l.MaxTokens = first(l.MaxTokens, base.MaxTokens)
	return l
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// Validate returns every limit that makes no sense.
func (l Limits) Validate() error {
	var errs []error
	if l.MaxTurns != nil && *l.MaxTurns < 0 {
		errs = append(errs, fmt.Errorf("maxTurns: %d is negative; 0 means no limit", *l.MaxTurns))
	}
	if l.BudgetUSD != nil && !(*l.BudgetUSD >= 0 && *l.BudgetUSD < 1e9) {
		errs = append(errs, fmt.Errorf("budgetUSD: %v is not an amount of dollars; 0 means no limit", *l.BudgetUSD))
	}
	if l.MaxTokens != nil && *l.MaxTokens < 0 {
		errs = append(errs, fmt.Errorf("maxTokens: %d is negative; 0 means no limit", *l.MaxTokens))
	}
	return errors.Join(errs...)
}
