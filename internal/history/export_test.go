package history

// Watched returns how many journals something is kept of in memory.
func Watched(h *History) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches)
}
