// Bench measures what docs/performance.md reports: every figure of one run,
// on one machine, with what it is compared to measured in turn. It prints a
// table and keeps every raw sample as JSON lines.
//
//	go run ./test/bench [-quick] [-only NAME]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	name   string
	unit   string
	target string // as the issue words it
	holds  func(median float64) bool
	values []float64
	note   string
}

// bench collects rows and samples.
type bench struct {
	ctx   context.Context
	bin   string // the folder of the programs
	dir   string // for scratch
	quick bool
	rows  []row
	raw   *os.File
}

func main() {
	quick := flag.Bool("quick", false, "fewer samples, smaller loads")
	only := flag.String("only", "", "only the parts whose name holds this")
	out := flag.String("raw", ".cache/bench.jsonl", "where raw samples are appended")
	flag.Parse()
	if err := run(*quick, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(quick bool, only, out string) error {
	dir, err := os.MkdirTemp("", "tallyman-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	raw, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer raw.Close()
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	b := &bench{ctx: context.Background(), bin: bin, dir: dir, quick: quick, raw: raw}
	b.machine()
	parts := []struct {
		name string
		run  func() error
	}{
		{"start", b.start}, {"submit", b.submit}, {"parse", b.parse}, {"pipe", b.pipe},
		{"journal", b.journal}, {"history", b.history}, {"attempts", b.attempts},
	}
	for _, p := range parts {
		if !strings.Contains(p.name, only) {
			continue
		}
		if err := b.settle(); err != nil {
			return err
		}
		if err := p.run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	b.print()
	return nil
}

// machine says where the figures are from.
func (b *bench) machine() {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(text); m != nil {
			model = string(m[1])
		}
	}
	commit := "unknown"
	if text, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		commit = strings.TrimSpace(string(text))
	}
	fmt.Printf("%s, commit %s, %s, %d cores (%s), load before %s\n\n", time.Now().UTC().Format(time.DateOnly), commit, runtime.Version(), runtime.NumCPU(), model, load())
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// settle waits, a minute at most, until the machine is quiet.
func (b *bench) settle() error {
	for until := time.Now().Add(time.Minute); time.Now().Before(until) && !b.quick; time.Sleep(2 * time.Second) {
		one, err := strconv.ParseFloat(load(), 64)
		if err != nil || one < 1.5 {
			return nil
		}
	}
	return nil
}

func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	line, err := json.Marshal(map[string]any{"at": time.Now().UTC(), "name": r.name, "unit": r.unit, "load": load(), "values": r.values})
	if err == nil {
		_, err = fmt.Fprintf(b.raw, "%s\n", line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: keeping raw samples:", err)
	}
	fmt.Fprintf(os.Stderr, "%-40s %s %s\n", r.name, number(median(r.values)), r.unit)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	switch n := len(s); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}

func number(f float64) string {
	switch {
	case math.IsNaN(f):
		return "-"
	case math.Abs(f) >= 1000:
		s := strconv.FormatFloat(f, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case math.Abs(f) >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	default:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
}

func (b *bench) print() {
	fmt.Println("| what | median | min – max | n | target | holds |\n| --- | ---: | ---: | ---: | --- | --- |")
	for _, r := range b.rows {
		m := median(r.values)
		verdict := ""
		if r.holds != nil {
			verdict = "yes"
			if !r.holds(m) {
				verdict = "**no**"
			}
		}
		name := r.name
		if r.note != "" {
			name += " (" + r.note + ")"
		}
		fmt.Printf("| %s | %s %s | %s – %s | %d | %s | %s |\n", name, number(m), r.unit, number(slices.Min(r.values)), number(slices.Max(r.values)), len(r.values), r.target, verdict)
	}
}

func atMost(n float64) func(float64) bool  { return func(m float64) bool { return m <= n } }
func atLeast(n float64) func(float64) bool { return func(m float64) bool { return m >= n } }

func (b *bench) times(n int) int {
	if b.quick {
		return max(3, n/4)
	}
	return n
}

// command is a program of ours on a data folder.
func (b *bench) command(data string, args ...string) *exec.Cmd {
	return exec.CommandContext(b.ctx, filepath.Join(b.bin, "tallyman"), append([]string{"--data", filepath.Join(b.dir, data)}, args...)...)
}

// wall is how long a command takes, in ms.
func wall(cmd *exec.Cmd) (float64, error) {
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return float64(time.Since(began).Microseconds()) / 1000, nil
}

// benchLine is a figure of a line of go test -bench.
var benchLine = regexp.MustCompile(`([0-9.e+]+) (\S+)`)

// goBench runs Go benchmarks and returns every figure by benchmark and unit.
func (b *bench) goBench(pkg, pattern string, count int, args ...string) (map[string]map[string][]float64, error) {
	cmd := exec.CommandContext(b.ctx, "go", append([]string{"test", pkg, "-run", "^$", "-bench", pattern, "-count", strconv.Itoa(count), "-timeout", "20m"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	all := map[string]map[string][]float64{}
	in := bufio.NewScanner(strings.NewReader(string(out)))
	for in.Scan() {
		fields := strings.SplitN(in.Text(), "\t", 3)
		if !strings.HasPrefix(in.Text(), "Benchmark") || len(fields) < 3 {
			continue
		}
		name := strings.TrimSpace(strings.TrimPrefix(fields[0], "Benchmark"))
		name = regexp.MustCompile(`-\d+$`).ReplaceAllString(name, "")
		if all[name] == nil {
			all[name] = map[string][]float64{}
		}
		for _, m := range benchLine.FindAllStringSubmatch(fields[2], -1) {
			if v, err := strconv.ParseFloat(m[1], 64); err == nil {
				all[name][m[2]] = append(all[name][m[2]], v)
			}
		}
	}
	return all, nil
}
