package mask

// Stream masks a text that comes in pieces. What it has given out and what
// String makes of the whole text are the same.
type Stream struct {
	masker  *Masker
	held    string // the end of what was written, which may become a secret
	covered int    // bytes of held that belong to a secret already labelled
}

// Stream returns a stream for one text.
func (m *Masker) Stream() *Stream { return &Stream{masker: m} }

// Write adds a piece and returns what can be shown by now. It holds back only
// an end that is the beginning of a secret.
func (s *Stream) Write(text string) (out string) {
	if s.masker == nil {
		return text
	}
	text = s.held + text
	return s.show(text, s.masker.index.hold(text))
}

// Flush returns what was held back, at the end of the text.
func (s *Stream) Flush() string {
	if s.masker == nil {
		return ""
	}
	return s.show(s.held, len(s.held))
}

func (s *Stream) show(text string, limit int) string {
	if s.covered == 0 && !s.masker.index.has(text) {
		s.held = text[limit:]
		return text[:limit]
	}
	out, covered := s.masker.render(nil, text, s.covered, limit)
	s.held, s.covered = text[limit:], max(0, covered-limit)
	return string(out)
}
