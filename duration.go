package tallyman

import (
	"fmt"
	"time"
)

// Duration is a time.Duration written as Go writes it: 90s, 2h, 1h30m.
// In files "0" means none.
type Duration time.Duration

// D returns the standard library's duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String writes the duration as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads; negative is refused.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it like 90s, 15m or 2h", b)
	}
	if v < 0 {
		return fmt.Errorf("duration %s is negative", b)
	}
	*d = Duration(v)
	return nil
}
