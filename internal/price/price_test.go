package price_test

import (
	"math"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/price"
)

var million = tallyman.Usage{InputTokens: 1e6, OutputTokens: 1e6, CacheReadTokens: 1e6, CacheWriteTokens: 1e6}

func TestCostByName(t *testing.T) {
	table, err := price.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	const sonnet, none = 3 + 15 + .3 + 3.75, -1
	for name, tc := range map[string]struct {
		model string
		want  float64 // of a million of each kind; none: unknown
	}{
		"the plain name":                           {"claude-sonnet-4-5", sonnet},
		"a date after it":                          {"claude-sonnet-4-5-20250929", sonnet},
		"a date with dashes":                       {"gpt-5-2025-08-07", 1.25 + 10 + .125 + 1.25},
		"Vertex writes the date after an at sign":  {"claude-sonnet-4-5@20250929", sonnet},
		"a provider and a default":                 {"google-vertex-anthropic/claude-sonnet-4-5@default", sonnet},
		"Bedrock's region, provider and version":   {"us.anthropic.claude-sonnet-4-5-20250929-v1:0", sonnet},
		"Bedrock's ARN":                            {"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-sonnet-4-5-20250929-v1:0", sonnet},
		"a window size":                            {"claude-sonnet-4-5[1m]", sonnet},
		"capitals and blanks":                      {" Claude-Sonnet-4-5 ", sonnet},
		"an old one":                               {"claude-3-5-haiku-20241022", .8 + 4 + .08 + 1},
		"latest":                                   {"claude-3-7-sonnet-latest", sonnet},
		"Google's preview":                         {"models/gemini-3-pro-preview", 2 + 12 + .2 + 2},
		"Google's dated preview":                   {"gemini-2.5-flash-preview-09-2025", .3 + 2.5 + .03 + .3},
		"no price for cache writes costs as input": {"gpt-5-mini", .25 + 2 + .025 + .25},
		"a newer sibling is not its elder":         {"claude-opus-4-99", none},
		"a variant is not its base":                {"gpt-5-giant", none},
		"a made-up one":                            {"fake-model", none},
		"what the harness made up":                 {"<synthetic>", none},
		"nothing":                                  {"", none},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := table.Cost(tc.model, million)
			if ok != (tc.want != none) || ok && math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("Cost(%q) = %v, %v; want %v", tc.model, got, ok, tc.want)
			}
		})
	}
}

func TestCostIsThatOfTheRecordedRun(t *testing.T) {
	table, err := price.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	u := tallyman.Usage{InputTokens: 24, OutputTokens: 46, CacheReadTokens: 200, CacheWriteTokens: 10}
	if got, ok := table.Cost("claude-sonnet-4-5", u); !ok || math.Abs(got-0.0008595) > 1e-12 {
		t.Errorf("got %v, %v; the harness itself said 0.0008595", got, ok)
	}
	if table.Date == "" || table.Source == "" {
		t.Error("the table does not say how old it is and where it comes from")
	}
}

func TestOverride(t *testing.T) {
	table, err := price.Load([]byte(`{"date":"2030-01-01","models":{"house-model":{"input":1,"output":2},"gpt-5":{"input":0,"output":0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]float64{"house-model": 1 + 2 + 1 + 1, "gpt-5": 0, "o3": 2 + 8 + .5 + 2} {
		if got, ok := table.Cost(model, million); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("Cost(%s) = %v, %v; want %v", model, got, ok, want)
		}
	}
	if table.Date != "2030-01-01" {
		t.Errorf("date is %s", table.Date)
	}
}

func TestABadOverrideIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ file, says string }{
		"not JSON":         {`{`, "unexpected EOF"},
		"an unknown key":   {`{"models":{"m":{"input":1,"output":1,"cached":2}}}`, "cached"},
		"a negative price": {`{"models":{"m":{"input":-1,"output":1}}}`, "models.m"},
		"no output price":  {`{"models":{"m":{"input":1}}}`, "output"},
		"a word":           {`{"models":{"m":{"input":"1","output":1}}}`, "input"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := price.Load([]byte(tc.file))
			if tallyman.CodeOf(err) != tallyman.Invalid || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
