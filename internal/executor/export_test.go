package executor

// Remembered is how many attempts something is remembered of.
func (x *Executor) Remembered() int { return len(x.seen) }
