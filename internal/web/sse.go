package web

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

const (
	heartbeat = 15 * time.Second
	// writeWait is how long a reader may keep a stream from being written.
	writeWait = 30 * time.Second
)

// stream writes server-sent events.
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func openStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s := &stream{w: w, rc: http.NewResponseController(w)}
	s.buf.WriteString("retry: 2000\n\n")
	return s
}

var noReturns = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// event adds an event. A carriage return would end a line of the protocol, so
// it becomes a newline.
func (s *stream) event(name, id, data string) {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	s.buf.WriteString("event: " + name + "\n")
	for line := range strings.SplitSeq(noReturns.Replace(data), "\n") {
		s.buf.WriteString("data: " + line + "\n")
	}
	s.buf.WriteByte('\n')
}

func (s *stream) beat() { s.buf.WriteString(": here\n\n") }

// flush sends what was added.
func (s *stream) flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	// Where no deadline can be set, the reader's going away ends the context.
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeWait))
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	return s.rc.Flush()
}
