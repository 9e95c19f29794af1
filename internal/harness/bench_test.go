package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const sampleSize = 57 << 20

// sample generates a stream as a long run writes it: lines of 1.9 kB on
// average, most of them text, tool calls and their results.
func sample(size int) []byte {
	var b bytes.Buffer
	b.Grow(size + 4096)
	prose := "The function reads the header first, then walks the list; a \"missing\" entry is no error.\nIt returns early — see café.go:42.\n"
	source := "func (s *Server) serve(ctx context.Context) error {\n\tfor {\n\t\tconn, err := s.l.Accept()\n\t\tif err != nil {\n\t\t\treturn fmt.Errorf(\"accept: %w\", err)\n\t\t}\n\t}\n}\n"
	tail := `"session_id":"fd751123-77f6-48c9-9831-db37faca8219","uuid":"%08x-1d2e-4f3a-8b4c-5d6e7f8a9b0c"}` + "\n"
	for n := 0; b.Len() < size; n++ {
		head := fmt.Sprintf(`{"type":"assistant","message":{"id":"msg_%06d","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[`, n/3)
		foot := `],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"cache_read_input_tokens":100,"cache_creation_input_tokens":5,"output_tokens":23},"context_management":null},"parent_tool_use_id":null,`
		switch n % 3 {
		case 0:
			fmt.Fprintf(&b, `%s{"type":"text","text":%s}%s`+tail, head, quoted(strings.Repeat(prose, 9)), foot, n)
		case 1:
			fmt.Fprintf(&b, `%s{"type":"tool_use","id":"toolu_%06d","name":"Edit","input":{"file_path":"/work/a.go","old_string":%s,"new_string":%s}}%s`+tail,
				head, n, quoted(strings.Repeat(source, 4)), quoted(strings.Repeat(source, 5)), foot, n)
		default:
			fmt.Fprintf(&b, `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_%06d","type":"tool_result","content":%s,"is_error":false}]},"parent_tool_use_id":null,"tool_use_result":{"stdout":"","stderr":""},`+tail,
				n-1, quoted(strings.Repeat(source, 8)), n)
		}
	}
	return b.Bytes()
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// eachLine stands for the cutting of lines that the runner does anyway.
func eachLine(stream []byte, do func(line []byte)) {
	for len(stream) > 0 {
		i := bytes.IndexByte(stream, '\n')
		do(stream[:i])
		stream = stream[i+1:]
	}
}

func BenchmarkEnvelope(b *testing.B) {
	stream := sample(sampleSize)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		p := claude{}.NewParser(tallyman.RunnerSpec{}).(*claudeParser)
		eachLine(stream, func(line []byte) {
			if !p.read(line) || !p.json || p.envelope().kind == nil {
				b.Fatal("not an envelope")
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	stream := sample(sampleSize)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	var batch Batch
	var buf []byte
	for b.Loop() {
		p := claude{}.NewParser(tallyman.RunnerSpec{})
		eachLine(stream, func(line []byte) {
			batch.Reset()
			p.Parse(line, &batch)
			for i := range batch.Events {
				buf = batch.Events[i].AppendJSON(buf[:0])
			}
			p.Progress()
		})
	}
}

// BenchmarkExec is what a plain command's output costs.
func BenchmarkExec(b *testing.B) {
	stream := sample(sampleSize)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	var batch Batch
	var buf []byte
	for b.Loop() {
		p := execHarness{}.NewParser(tallyman.RunnerSpec{})
		eachLine(stream, func(line []byte) {
			batch.Reset()
			p.Parse(line, &batch)
			for i := range batch.Events {
				buf = batch.Events[i].AppendJSON(buf[:0])
			}
		})
	}
}

// BenchmarkPython is the peer: json.loads over the lines of the same file.
func BenchmarkPython(b *testing.B) {
	python, err := exec.LookPath("python3")
	if err != nil {
		b.Skip("there is no python3 to compare with")
	}
	stream := sample(sampleSize)
	file := filepath.Join(b.TempDir(), "sample.ndjson")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		b.Fatal(err)
	}
	const program = `
import json, sys, time
lines = open(sys.argv[1], "rb").read().splitlines()
start = time.perf_counter()
for line in lines:
    json.loads(line)
print(time.perf_counter() - start)
`
	b.SetBytes(int64(len(stream)))
	var total time.Duration
	for b.Loop() {
		out, err := exec.Command(python, "-c", program, file).Output()
		if err != nil {
			b.Fatal(err)
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	b.ReportMetric(float64(len(stream))*float64(b.N)/1e6/total.Seconds(), "json-MB/s")
}
