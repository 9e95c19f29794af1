package config

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"
)

// Shown is a value as it is printed.
type Shown struct {
	Value string `json:"value"`
	From  string `json:"from"`
}

// show returns the values in force, secrets masked, and the key of each.
func (c Config) show(origins Origins) ([]string, []Shown) {
	names, shown := []string{"config"}, []Shown{{Value: c.File, From: cmp.Or(origins["config"], fromDefault)}}
	for _, k := range keys {
		text := k.get(c)
		if k.Name == "server" {
			text = masked(text)
		}
		names, shown = append(names, k.Name), append(shown, Shown{Value: text, From: cmp.Or(origins[k.Name], fromDefault)})
	}
	return names, shown
}

// masked hides what a URL says about who asks: a password, and what may be a
// token behind the question mark.
func masked(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return "(no URL)"
	}
	if u.RawQuery != "" {
		u.RawQuery = "xxxxx"
	}
	return u.Redacted()
}

// Print writes a table of the values in force and where each comes from.
func (c Config) Print(w io.Writer, origins Origins) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tFROM")
	names, shown := c.show(origins)
	for i, s := range shown {
		fmt.Fprintf(t, "%s\t%s\t%s\n", names[i], cmp.Or(s.Value, "-"), s.From)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	return nil
}

// Shown returns by key the value in force, secrets masked, and where it comes
// from.
func (c Config) Shown(origins Origins) map[string]Shown {
	out := make(map[string]Shown, len(keys)+1)
	names, shown := c.show(origins)
	for i, s := range shown {
		out[names[i]] = s
	}
	return out
}
