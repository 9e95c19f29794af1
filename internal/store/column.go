package store

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The types in this file stand for a column: each points at the field that
// the column is written from and read into, so that a list of them serves
// both ways.

// text is text that both engines can store.
type text struct{ s *string }

// Value returns the text without what SQL text cannot hold.
func (c text) Value() (driver.Value, error) { return clean(*c.s), nil }

// Scan reads the column into the field.
func (c text) Scan(src any) error {
	switch v := src.(type) {
	case string:
		*c.s = v
	case []byte:
		*c.s = string(v)
	default:
		return fmt.Errorf("text column holds %T", src)
	}
	return nil
}

// clean replaces U+0000 and what is not UTF-8, lone surrogates among it.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}

// at is a time in UTC microseconds.
type at struct{ t *time.Time }

// Value returns the microseconds.
func (c at) Value() (driver.Value, error) { return c.t.UnixMicro(), nil }

// Scan reads the column into the field.
func (c at) Scan(src any) error {
	us, ok := src.(int64)
	if !ok {
		return fmt.Errorf("time column holds %T", src)
	}
	*c.t = time.UnixMicro(us).UTC()
	return nil
}

// mayAt is a time that may be missing.
type mayAt struct{ t **time.Time }

// Value returns the microseconds or NULL.
func (c mayAt) Value() (driver.Value, error) {
	if *c.t == nil {
		return nil, nil
	}
	return (*c.t).UnixMicro(), nil
}

// Scan reads the column into the field.
func (c mayAt) Scan(src any) error {
	if src == nil {
		*c.t = nil
		return nil
	}
	var t time.Time
	if err := (at{&t}).Scan(src); err != nil {
		return err
	}
	*c.t = &t
	return nil
}

// mayInt is a number that may be missing.
type mayInt struct{ n **int }

// Value returns the number or NULL.
func (c mayInt) Value() (driver.Value, error) {
	if *c.n == nil {
		return nil, nil
	}
	return int64(**c.n), nil
}

// Scan reads the column into the field.
func (c mayInt) Scan(src any) error {
	if src == nil {
		*c.n = nil
		return nil
	}
	v, ok := src.(int64)
	if !ok {
		return fmt.Errorf("number column holds %T", src)
	}
	n := int(v)
	*c.n = &n
	return nil
}

// asJSON is a value of Go written as JSON.
type asJSON[T any] struct{ v *T }

// Value returns the JSON.
func (c asJSON[T]) Value() (driver.Value, error) {
	b, err := json.Marshal(*c.v)
	return string(b), err
}

// Scan reads the column into the field.
func (c asJSON[T]) Scan(src any) error {
	var s string
	if err := (text{&s}).Scan(src); err != nil {
		return err
	}
	if s == "{}" { // the most frequent value, and it changes nothing
		return nil
	}
	return json.Unmarshal([]byte(s), c.v)
}

// mayJSON is a value of Go written as JSON, or NULL.
type mayJSON[T any] struct{ v **T }

// Value returns the JSON or NULL.
func (c mayJSON[T]) Value() (driver.Value, error) {
	if *c.v == nil {
		return nil, nil
	}
	return asJSON[T]{*c.v}.Value()
}

// Scan reads the column into the field.
func (c mayJSON[T]) Scan(src any) error {
	if src == nil {
		*c.v = nil
		return nil
	}
	var v T
	if err := (asJSON[T]{&v}).Scan(src); err != nil {
		return err
	}
	*c.v = &v
	return nil
}

// labels is a run's labels; none are read as an empty map.
type labels struct{ m *map[string]string }

// Value returns the labels as a JSON object.
func (c labels) Value() (driver.Value, error) {
	if len(*c.m) == 0 {
		return "{}", nil
	}
	return asJSON[map[string]string]{c.m}.Value()
}

// Scan reads the column into the field.
func (c labels) Scan(src any) error {
	*c.m = map[string]string{}
	return asJSON[map[string]string]{c.m}.Scan(src)
}
