// Package price estimates what tokens cost, for harnesses that report tokens
// and no money. Its table is dated list prices; what a user pays may differ.
package price

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

//go:embed prices.json
var embedded []byte

// Table holds prices by model. It never changes once loaded.
type Table struct {
	Date   string // of the embedded prices, or of the override when it says one
	Source string
	models map[string]rates
}

// rates are US dollars per million tokens. A cache kind without a price costs
// what input costs.
type rates struct {
	Input      *float64 `json:"input"`
	Output     *float64 `json:"output"`
	CacheRead  *float64 `json:"cache_read"`
	CacheWrite *float64 `json:"cache_write"`
}

type file struct {
	Date   string           `json:"date"`
	Source string           `json:"source"`
	Models map[string]rates `json:"models"`
}

// Load returns the embedded prices with those of override above them, model
// by model. override is a file like prices.json, or nil; a mistake in it is
// an Invalid error.
func Load(override []byte) (*Table, error) {
	t := &Table{models: map[string]rates{}}
	if err := t.add(embedded); err != nil {
		return nil, fmt.Errorf("read the embedded prices: %w", err)
	}
	if len(override) == 0 {
		return t, nil
	}
	if err := t.add(override); err != nil {
		return nil, tallyman.Errorf(tallyman.Invalid, "prices: %w", err)
	}
	return t, nil
}

func (t *Table) add(b []byte) error {
	var f file
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return err
	}
	for model, r := range f.Models {
		if err := r.check(); err != nil {
			return fmt.Errorf("models.%s: %w", model, err)
		}
	}
	if f.Date != "" {
		t.Date = f.Date
	}
	if f.Source != "" {
		t.Source = f.Source
	}
	maps.Copy(t.models, f.Models)
	return nil
}

func (r rates) check() error {
	if r.Input == nil || r.Output == nil {
		return fmt.Errorf("input and output prices are needed")
	}
	for _, p := range []*float64{r.Input, r.Output, r.CacheRead, r.CacheWrite} {
		if p != nil && !(*p >= 0 && *p < 1e6) {
			return fmt.Errorf("%v is not a price in dollars per million tokens", *p)
		}
	}
	return nil
}

// Cost estimates what u costs with a model; ok is false for a model that is
// not in the table. Input tokens must not contain those read from the cache.
func (t *Table) Cost(model string, u tallyman.Usage) (usd float64, ok bool) {
	r, ok := t.models[model]
	if !ok {
		r, ok = t.models[family(model)]
	}
	if !ok {
		return 0, false
	}
	usd = float64(u.InputTokens)*per(r.Input, r.Input) +
		float64(u.OutputTokens)*per(r.Output, r.Input) +
		float64(u.CacheReadTokens)*per(r.CacheRead, r.Input) +
		float64(u.CacheWriteTokens)*per(r.CacheWrite, r.Input)
	return usd / 1e6, true
}

func per(p, otherwise *float64) float64 {
	if p == nil {
		return *otherwise
	}
	return *p
}

var (
	// provider is what stands before a name: anthropic/, us.anthropic.,
	// google-vertex-anthropic/, models/ …
	provider = regexp.MustCompile(`^(.*/)?([a-z]{2,6}\.)?((anthropic|openai|google)\.)?`)
	// edition is what stands after it: a date, a version of the provider's,
	// a window size, a word that names no other model.
	edition = regexp.MustCompile(`(\[[0-9a-z]+\]|@[0-9a-z]+|:[0-9a-z]+|-v[0-9]+|-20[0-9]{6}|-20[0-9]{2}-[0-9]{2}-[0-9]{2}|-latest|-preview(-[0-9]{2}-[0-9]{2,4})?)$`)
)

// family takes provider and edition off a model's name. It never turns one
// model into another: claude-opus-4-9 is not claude-opus-4.
func family(model string) string {
	model = strings.ToLower(strings.TrimSpace(model))
	model = model[len(provider.FindString(model)):]
	for {
		shorter := edition.ReplaceAllString(model, "")
		if shorter == model {
			return model
		}
		model = shorter
	}
}
