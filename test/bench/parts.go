package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// start: how long the command line takes with nothing running.
func (b *bench) start() error {
	version, embedded := row{name: "CLI start (`tallyman version`)", unit: "ms", target: "≤ 60 ms", holds: atMost(60)},
		row{name: "`tallyman run --harness exec -- true`, embedded", unit: "ms", target: "≤ 250 ms", holds: atMost(250)}
	for range b.times(20) {
		v, err := wall(b.command("none", "version"))
		if err != nil {
			return err
		}
		version.values = append(version.values, v)
		if v, err = wall(b.command("embedded", "run", "--harness", "exec", "--", "true")); err != nil {
			return err
		}
		embedded.values = append(embedded.values, v)
	}
	b.add(version)
	b.add(embedded)
	return nil
}

// serve starts a server and returns a client of it.
func (b *bench) serve(data string) (*exec.Cmd, *client.Client, error) {
	cmd := b.command(data, "up", "--listen", "127.0.0.1:0", "--max-running", "200", "--log-level", "warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	c := client.NewSocket(filepath.Join(b.dir, data, "run", "tallyman.sock"))
	for range 200 {
		if _, err := c.Info(b.ctx); err == nil {
			return cmd, c, nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	return nil, nil, errors.New("the server does not answer")
}

func end(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}

// memory is a field of a process's status, in kB.
func memory(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0
	}
	return v
}

func execRequest(key string, argv ...string) tallyman.Request {
	return tallyman.Request{
		Agent: "exec", Command: argv, Source: tallyman.SourceCLI, Key: key,
		Inline: &tallyman.Agent{Name: "exec", Origin: tallyman.BuiltIn, Spec: tallyman.AgentSpec{Harness: "exec"}},
	}
}

// wait follows a run to its end.
func wait(ctx context.Context, c *client.Client, id string) (tallyman.Run, error) {
	if err := c.Events(ctx, id, client.EventOptions{Follow: true}, func([]byte) error { return nil }); err != nil {
		return tallyman.Run{}, err
	}
	run, err := c.Run(ctx, id)
	if err == nil && run.State != tallyman.Succeeded {
		err = fmt.Errorf("run %s %s: %s", run.Name, run.State, run.Message)
	}
	return run, err
}

// submit: an idle server, and how soon it starts what is submitted.
func (b *bench) submit() error {
	cmd, c, err := b.serve("submit")
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	b.add(row{name: "idle server, resident memory", unit: "MB", target: "≤ 45 MB", holds: atMost(45), values: []float64{memory(cmd.Process.Pid, "VmRSS") / 1000}})
	r := row{name: "submit to process start, server running", unit: "ms", target: "≤ 40 ms median", holds: atMost(40)}
	for range b.times(60) {
		run, err := c.Submit(b.ctx, execRequest("", "true"))
		if err != nil {
			return err
		}
		if run, err = wait(b.ctx, c, run.ID); err != nil {
			return err
		}
		r.values = append(r.values, float64(run.StartedAt.Sub(run.CreatedAt).Microseconds())/1000)
	}
	b.add(r)
	return end(cmd)
}

// parse: our adapter against Python's json on the same file, in turn.
func (b *bench) parse() error {
	names := []string{"Envelope", "Python", "Parse"}
	values := map[string][]float64{}
	for range b.times(6) {
		for _, name := range names {
			got, err := b.goBench("./internal/harness", "^Benchmark"+name+"$", 1)
			if err != nil {
				return err
			}
			unit := "MB/s"
			if name == "Python" {
				unit = "json-MB/s"
			}
			values[name] = append(values[name], got[name][unit]...)
		}
	}
	python := median(values["Python"])
	b.add(row{name: "row 9: Python's json.loads, 57 MB stream-json", unit: "MB/s", values: values["Python"], target: "peer"})
	b.add(row{name: "row 9: envelope", unit: "MB/s", values: values["Envelope"], target: "≥ 2 × Python", holds: atLeast(2 * python)})
	b.add(row{name: "row 9: full parse and encoding of every event", unit: "MB/s", values: values["Parse"], target: "≥ 1 × Python", holds: atLeast(python)})
	return nil
}

// pipe: what a child writes, parsed, masked, journaled, stored and followed.
func (b *bench) pipe() error {
	path := filepath.Join(b.dir, "stream")
	lines, size, err := b.stream(path)
	if err != nil {
		return err
	}
	cmd, c, err := b.serve("pipe")
	if err != nil {
		return err
	}
	ours := row{name: "row 10: child's pipe to one follower", unit: "MB/s", target: "≥ 150 MB/s", holds: atLeast(150)}
	cat := row{name: "row 10: `cat FILE \\| wc -c`, the bare pipe", unit: "MB/s", target: "peer"}
	for range b.times(5) {
		took, err := b.follow(c, path, lines)
		if err != nil {
			return err
		}
		ours.values = append(ours.values, float64(size)/1e6/took.Seconds())
		ms, err := wall(exec.CommandContext(b.ctx, "sh", "-c", "cat "+path+" | wc -c"))
		if err != nil {
			return err
		}
		cat.values = append(cat.values, float64(size)/1e3/ms)
	}
	b.add(ours)
	b.add(cat)
	b.add(row{name: "row 10: the server's largest resident memory meanwhile", unit: "MB", target: "≤ 150 MB", holds: atMost(150), values: []float64{memory(cmd.Process.Pid, "VmHWM") / 1000}})
	return end(cmd)
}

// stream writes a file of lines as an agent writes them.
func (b *bench) stream(path string) (lines, size int, err error) {
	least := 1 << 30
	if b.quick {
		least = 200 << 20
	}
	line := []byte(`{"type":"x","text":"` + strings.Repeat("the quick brown fox jumps over the lazy dog ", 43) + `"}` + "\n")
	chunk := bytes.Repeat(line, 512)
	f, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	for size < least {
		n, err := f.Write(chunk)
		if err != nil {
			return 0, 0, errors.Join(err, f.Close())
		}
		size += n
	}
	return size / len(line), size, f.Close()
}

// follow runs a child that writes a file's lines, and follows them to the end.
// From the agent's start to its last event's arrival would need two clocks;
// the run ends after its events were drained.
func (b *bench) follow(c *client.Client, path string, want int) (took time.Duration, err error) {
	run, err := c.Submit(b.ctx, execRequest("", "cat", path))
	if err != nil {
		return 0, err
	}
	lines := 0
	err = c.Events(b.ctx, run.ID, client.EventOptions{Follow: true}, func(line []byte) error {
		if bytes.Contains(line[:min(len(line), 120)], []byte(`"type":"text"`)) {
			lines++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if lines != want {
		return 0, fmt.Errorf("%d of %d lines arrived", lines, want)
	}
	if run, err = c.Run(b.ctx, run.ID); err != nil {
		return 0, err
	}
	if err := c.Delete(b.ctx, run.ID); err != nil && tallyman.CodeOf(err) != tallyman.Conflict {
		return 0, err
	}
	return run.EndedAt.Sub(*run.StartedAt), nil
}

// journal: durable appends against the bare loop, and recovery.
func (b *bench) journal() error {
	got, err := b.goBench("./internal/journal", "^BenchmarkAppend$", b.times(5), "-benchtime", "1s")
	if err != nil {
		return err
	}
	for _, n := range []int{1, 8, 64, 512} {
		name := fmt.Sprintf("Append/writers=%d/", n)
		raw := got[name+"raw"]["appends/s"]
		b.add(row{name: fmt.Sprintf("row 12: bare loop, %d writers of 256 B", n), unit: "appends/s", values: raw, target: "peer"})
		b.add(row{name: fmt.Sprintf("row 12: journal, %d writers", n), unit: "appends/s", values: got[name+"journal"]["appends/s"], target: "≥ 0.8 × bare loop", holds: atLeast(0.8 * median(raw))})
	}
	if err := b.peers(median(got["Append/writers=64/journal"]["appends/s"])); err != nil {
		return err
	}
	if got, err = b.goBench("./internal/journal", "^BenchmarkRecover100k$", b.times(5)); err != nil {
		return err
	}
	b.add(row{name: "row 13: recovery of 100,000 records", unit: "ms", values: got["Recover100k"]["ms/recovery"], target: "≤ 300 ms", holds: atMost(300)})
	return nil
}

// peers: the libraries that a journal could be built on, with 64 writers.
func (b *bench) peers(ours float64) error {
	cmd := exec.CommandContext(b.ctx, "go", "run", ".", "-count", strconv.Itoa(b.times(5)))
	cmd.Dir, cmd.Stderr = filepath.Join("test", "bench", "peers"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	values := map[string][]float64{}
	for line := range bytes.Lines(out) {
		var s struct {
			Name    string
			Writers int
			Appends float64
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		if s.Writers == 64 {
			values[s.Name] = append(values[s.Name], s.Appends)
		}
	}
	best := 0.0
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b.add(row{name: "row 12: " + name + ", 64 writers", unit: "appends/s", values: values[name], target: "peer"})
		best = max(best, median(values[name]))
	}
	b.add(row{name: "row 12: journal over the best library, 64 writers", unit: "×", values: []float64{ours / best}, target: "≥ 1.5", holds: atLeast(1.5)})
	return nil
}

// history: durable appends in blocks of 256, and reading back.
func (b *bench) history() error {
	got, err := b.goBench("./internal/history", ".", b.times(5), "-benchtime", "2s")
	if err != nil {
		return err
	}
	for _, n := range []string{"1", "4", "16"} {
		r := row{name: "history: durable append, blocks of 256, " + n + " journals at once", unit: "events/s", values: got["Append/journals-"+n+"/bytes-200"]["events/s"]}
		if n != "1" {
			r.target, r.holds = "≥ 300,000/s", atLeast(300_000)
		}
		b.add(r)
	}
	b.add(row{name: "history: read back as appended", unit: "events/s", values: got["Read/bytes-200/appended"]["events/s"], target: "≥ 1,000,000/s", holds: atLeast(1_000_000)})
	b.add(row{name: "history: read back after the merge", unit: "events/s", values: got["Read/bytes-200/compacted"]["events/s"], target: "≥ 1,000,000/s", holds: atLeast(1_000_000)})
	return nil
}

// attempts: what each running attempt costs the server.
func (b *bench) attempts() error {
	cmd, c, err := b.serve("attempts")
	if err != nil {
		return err
	}
	// The first attempts warm what is made once; the next 100 are counted.
	const warm, n = 60, 100
	var ids []string
	var goroutines, rss []float64
	for _, more := range []int{warm, n} {
		if ids, err = b.sleepers(c, ids, more); err != nil {
			return err
		}
		count, err := serverGoroutines(filepath.Join(b.dir, "attempts", "run", "tallyman.sock"))
		if err != nil {
			return err
		}
		goroutines, rss = append(goroutines, count), append(rss, memory(cmd.Process.Pid, "VmRSS"))
	}
	for _, id := range ids {
		if _, err := c.Stop(b.ctx, id); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := c.Events(b.ctx, id, client.EventOptions{Follow: true}, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	b.add(row{name: "each running attempt, goroutines of the server", unit: "", target: "≤ 2", holds: atMost(2), values: []float64{(goroutines[1] - goroutines[0]) / n}, note: "100 more beside 60"})
	b.add(row{name: "each running attempt, resident memory of the server", unit: "kB", target: "≤ 60 kB", holds: atMost(60), values: []float64{(rss[1] - rss[0]) / n}, note: "100 more beside 60"})
	return end(cmd)
}

// sleepers starts n runs more that sleep, and waits until all are at it and
// the server has settled: past a heartbeat, and idle connections.
func (b *bench) sleepers(c *client.Client, ids []string, n int) ([]string, error) {
	for range n {
		run, err := c.Submit(b.ctx, execRequest("", "sleep", "600"))
		if err != nil {
			return ids, err
		}
		ids = append(ids, run.ID)
	}
	for _, id := range ids {
		for {
			run, err := c.Run(b.ctx, id)
			if err != nil {
				return ids, err
			}
			if run.State == tallyman.Running {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	time.Sleep(12 * time.Second)
	return ids, nil
}

// serverGoroutines is how many goroutines the server behind a socket has.
func serverGoroutines(socket string) (float64, error) {
	text, err := metrics(socket)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^go_goroutines (\S+)`).FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("no go_goroutines among the metrics")
	}
	return strconv.ParseFloat(m[1], 64)
}

// metrics reads /metrics over the socket.
func metrics(socket string) (string, error) {
	resp, err := socketClient(socket).Get("http://tallyman/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
