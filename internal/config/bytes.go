package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size, written as people write it: 64MiB, 10GB, 4096.
type Bytes int64

// units from the largest; of a size that fits several, the first is written.
var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// String writes the size in the largest binary unit that divides it, else as
// a plain number.
func (b Bytes) String() string {
	for _, u := range units[:4] {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalText writes what String does.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads a whole number with or without a unit, in whatever case.
func (b *Bytes) UnmarshalText(text []byte) error {
	digits, size := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units {
		if n := len(digits) - len(u.name); n > 0 && strings.EqualFold(digits[n:], u.name) {
			digits, size = strings.TrimSpace(digits[:n]), u.size
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/size {
		return fmt.Errorf("%q is not a size: write it like 64MiB, 10GB or 4096", text)
	}
	*b = Bytes(n * size)
	return nil
}
