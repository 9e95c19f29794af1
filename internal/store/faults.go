package store

import (
	"context"
	"sync/atomic"
	"time"
)

// Fault is what goes wrong with one call. The zero Fault is nothing.
type Fault struct {
	Delay  time.Duration // before the call
	Before error         // returned instead of the call
	After  error         // returned when the call is done; of InTx: after the commit
}

// WithFaults returns the same store with faults, for tests of those who use
// it. fault is asked at each call, of the store and of its transactions, with
// the method's name (a transaction's as "Tx.PutRun") and the call's number
// from 1. It may be called from several goroutines.
func WithFaults(s *Store, fault func(op string, n int) Fault) *Store {
	failing := *s
	failing.faults = &faults{fault: fault}
	return &failing
}

type faults struct {
	fault func(op string, n int) Fault
	calls atomic.Int64
}

// around runs call with what goes wrong with it. It is safe on nil.
func (f *faults) around(ctx context.Context, op string, call func() error) error {
	if f == nil {
		return call()
	}
	fault := f.fault(op, int(f.calls.Add(1)))
	if fault.Delay > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(fault.Delay):
		}
	}
	if fault.Before != nil {
		return fault.Before
	}
	if err := call(); err != nil {
		return err
	}
	return fault.After
}
