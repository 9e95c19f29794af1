//go:build linux

package contract_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// orphaned makes a data folder without a server or runner, whose only run has
// written its whole journal and could tell nobody.
func (p *place) orphaned() (run tallyman.Run, journal string) {
	p.t.Helper()
	s := p.up()
	p.agent("once", "harness: exec\nretry: {max: 0}\nworkspace: "+filepath.Join(p.dir, "work")+
		"\ncommand: [sh, -c, 'for i in 1 2 3 4 5; do echo line $i; done; while ! [ -e go ]; do sleep 0.02; done; for i in 6 7 8 9; do echo line $i; done; exit 0']")
	run, err := s.api.Submit(p.t.Context(), tallyman.Request{Agent: "once"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.eventually("it has spoken", func() bool { return strings.Contains(p.ok("logs", run.ID), "line 5") })
	s.kill()
	p.write("go", "")
	files := filepath.Join(p.data("attempts", run.ID+"-1", "journal"), "*")
	p.eventually("the journal has its end", func() bool {
		names, err := filepath.Glob(files)
		if err != nil || len(names) != 1 {
			return false
		}
		journal = names[0]
		b, err := os.ReadFile(journal)
		return err == nil && strings.Contains(string(b), `"type":"runner.ended"`)
	})
	if err := syscall.Kill(p.runner(), syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the runner is gone", func() bool { return p.runner() == 0 })
	return run, journal
}

func TestAJournalThatIsCutOrFlipped(t *testing.T) {
	p := newPlace(t)
	run, journal := p.orphaned()
	whole, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	name, err := filepath.Rel(p.data(), journal)
	if err != nil {
		t.Fatal(err)
	}
	end := strings.Index(string(whole), `"type":"runner.ended"`)
	type damage struct {
		what string
		make func(b []byte) []byte
		ok   bool // it is no damage
	}
	cases := []damage{{"nothing", func(b []byte) []byte { return b }, true}, {"gone", nil, false}}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 0x10; return b }
	}
	cut := func(at int) func([]byte) []byte { return func(b []byte) []byte { return b[:at] } }
	for _, at := range []int{0, 9, len(whole) / 3, len(whole) / 2, end, len(whole) - 1} {
		cases = append(cases, damage{fmt.Sprintf("flipped at %d", at), flip(at), false})
	}
	for _, at := range []int{0, 7, len(whole) / 3, len(whole) / 2, end, len(whole) - 1} {
		cases = append(cases, damage{fmt.Sprintf("cut at %d", at), cut(at), false})
	}
	for i, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			q := &place{t: t, dir: p.dir, env: append([]string(nil), p.env...)}
			data := filepath.Join(p.dir, fmt.Sprint("d", i))
			if out, err := exec.Command("cp", "-r", p.data(), data).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			q.set("TALLYMAN_DATA=" + data)
			file := filepath.Join(data, name)
			if c.make == nil {
				err = os.RemoveAll(filepath.Dir(file))
			} else {
				err = os.WriteFile(file, c.make(append([]byte(nil), whole...)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := q.show(run.ID)
			if c.ok {
				q.holds(got, tallyman.Completed)
				q.contains(q.ok("logs", run.ID), "line 1\n", "line 9\n")
				return
			}
			q.holds(got, tallyman.RunnerLost)
			if strings.HasPrefix(c.what, "flipped") && !strings.Contains(got.Message, filepath.Base(journal)) && !strings.Contains(got.Message, "left no outcome") {
				t.Errorf("the message names no file: %s", got.Message)
			}
			// What the server had seen before is there, and the good prefix.
			logs := q.ok("logs", run.ID)
			q.contains(logs, "line 1\n", "line 5\n")
			if c.what == fmt.Sprintf("cut at %d", len(whole)-1) || c.what == fmt.Sprintf("flipped at %d", len(whole)-1) {
				q.contains(logs, "line 9\n")
			}
			q.events(run.ID)
			q.ends(tallyman.Completed, "exec", "--", "true") // the rest works
		})
	}
}

func TestDatabasesThatAreDamaged(t *testing.T) {
	for _, name := range []string{"control.db", "history.db"} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.ends(tallyman.Completed, "exec", "--", "true")
			if err := os.WriteFile(p.data(name), []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"ls"}, {"run", "exec", "--", "true"}, {"up", "--listen", "127.0.0.1:0"}} {
				o := p.want(1, args...)
				p.contains(o.err, p.data(name))
				p.lacks(o.err, "goroutine")
			}
		})
	}
}

// mounted makes a small file system of a place's own, or skips.
func (p *place) mounted(options string) string {
	p.t.Helper()
	if os.Getuid() != 0 {
		p.t.Skip("mounting a small file system needs root")
	}
	dir := filepath.Join(p.dir, "mnt")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		p.t.Skipf("mounting a small file system: %v", err)
	}
	p.t.Cleanup(func() { // before the place is left
		for range 100 {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err == nil {
				return
			}
		}
		p.t.Error("unmounting failed")
	})
	return dir
}

func (p *place) remount(dir string, flags uintptr, options string) {
	p.t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, options); err != nil {
		p.t.Fatal(err)
	}
}

func TestAReadOnlyDataFolder(t *testing.T) {
	p := newPlace(t)
	dir := p.mounted("size=64m")
	p.set("TALLYMAN_DATA="+filepath.Join(dir, "data"), "TALLYMAN_JOURNAL_RESERVE=1MB")
	p.ends(tallyman.Completed, "exec", "--", "true")
	p.remount(dir, syscall.MS_RDONLY, "size=64m")
	for _, args := range [][]string{{"ls"}, {"run", "exec", "--", "true"}, {"run", "-d", "exec", "--", "true"}, {"up", "--listen", "127.0.0.1:0"}} {
		o := p.want(1, args...)
		p.contains(o.err, filepath.Join(dir, "data"), "read-only")
	}
	p.contains(p.want(1, "doctor").out, "BROKEN  data folder", "read-only")
	p.set("TALLYMAN_DATA=" + filepath.Join(dir, "new"))
	for _, args := range [][]string{{"ls"}, {"run", "-d", "exec", "--", "true"}} {
		p.contains(p.want(1, args...).err, filepath.Join(dir, "new"), "read-only", "--data")
	}
	p.set("TALLYMAN_DATA=" + filepath.Join(dir, "data"))
	p.remount(dir, 0, "size=64m")
	if n := strings.Count(p.ok("ls", "-o", "name"), "\n"); n != 1 {
		t.Errorf("%d runs are there, want 1", n)
	}
}

// room is a place whose data folder is on a disk of its own.
func (p *place) room(size string) (dir string) {
	p.t.Helper()
	dir = p.mounted("size=" + size)
	p.set("TALLYMAN_DATA="+filepath.Join(dir, "data"), "TALLYMAN_JOURNAL_RESERVE=1MB", "TALLYMAN_GRACE=1s")
	return dir
}

func TestAnAgentThatFillsTheDiskWithWords(t *testing.T) {
	p := newPlace(t)
	dir := p.room("48m")
	p.ends(tallyman.Completed, "exec", "--", "echo", "while there is room")
	p.agent("flood", "harness: exec\nretry: {max: 0}\ncommand: [sh, -c, 'i=0; while :; do i=$((i+1)); echo $i; head -c 20000 /dev/urandom | base64 -w0; echo; done']")
	o := p.call("run", "flood")
	if o.code != 1 {
		t.Errorf("want 1: %s", o.err)
	}
	p.contains(o.err, "BackendError", filepath.Join(dir, "data"), "no space left on device")
	p.lacks(o.err, "goroutine", "Completed")
	names := strings.Fields(p.ok("ls", "-o", "name"))
	run := p.show(names[0])
	p.holds(run, tallyman.BackendError)
	events := p.events(run.ID)
	if got := texts(events, tallyman.EventText); len(got) < 100 || got[0] != "1" || got[2] != "2" {
		t.Errorf("%d lines are left of it", len(got))
	}
	if last := events[len(events)-1]; last.Type != tallyman.EventRunnerEnded {
		t.Errorf("the last event is %s", last.Type)
	}
	p.contains(p.ok("logs", names[1]), "while there is room")
	p.ok("rm", run.ID)
	p.ok("prune", "--age", "0s")
	if got := p.ok("run", "exec", "--", "echo", "room again"); got != "room again\n" {
		t.Errorf("got %q", got)
	}
}

func TestADiskThatIsFullToTheLastByte(t *testing.T) {
	p := newPlace(t)
	dir := p.room("32m")
	p.agent("hog", "harness: exec\nretry: {max: 0}\ncommand: [sh, -c, 'echo before; cat /dev/zero > hog; while :; do echo after; sleep 0.1; done']")
	first := p.start("", "run", "hog")
	p.eventually("the disk is full", func() bool {
		var s syscall.Statfs_t
		return syscall.Statfs(dir, &s) == nil && s.Bfree == 0
	})
	p.eventually("it is said where", func() bool { return strings.Contains(first.err.String(), filepath.Join(dir, "data")) })
	p.eventually("the agent has been ended", func() bool { return p.count("after") == 0 })
	o := p.want(4, "run", "exec", "--", "echo", "more")
	p.contains(o.err, filepath.Join(dir, "data"), "free", "prune")
	p.remount(dir, 0, "size=128m")
	o = first.wait()
	if o.code != 1 || strings.Contains(o.err, "Completed") {
		t.Errorf("want a failure: %s", o)
	}
	p.contains(o.err, "no space left on device")
	p.contains(o.out, "before\n")
	run := p.show(strings.TrimSpace(p.ok("ls", "-o", "name")))
	p.holds(run, tallyman.BackendError)
	p.contains(p.ok("logs", run.ID), "before\n")
	p.events(run.ID)
}
