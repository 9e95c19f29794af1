//go:build linux

package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestOutputs(t *testing.T) {
	schema := `{type: object, required: [answer], properties: {answer: {type: integer}}}`
	for name, c := range map[string]struct {
		outputs, do string
		reason      tallyman.Reason
		says        string
		kept        string // names, by blanks
	}{
		"there":                           {"[{path: a.txt}]", "echo x > a.txt", tallyman.Completed, "", "a.txt"},
		"in folders":                      {"[{path: 'out/**/*.md'}]", "mkdir -p out/b/c; echo 1 > out/a.md; echo 2 > out/b/c/d.md; echo 3 > out/x.txt", tallyman.Completed, "", "out/a.md out/b/c/d.md"},
		"missing":                         {"[{path: a.txt}, {path: b.txt}]", "echo x > a.txt", tallyman.NoOutput, "b.txt", "a.txt"},
		"missing, and it may":             {"[{path: a.txt, required: false}]", "true", tallyman.Completed, "", ""},
		"as its schema says":              {"[{path: a.json, schema: " + schema + "}]", `echo '{"answer": 42}' > a.json`, tallyman.Completed, "", "a.json"},
		"not as its schema says":          {"[{path: a.json, schema: " + schema + "}]", `echo '{"answer": "42"}' > a.json`, tallyman.OutputInvalid, "answer", "a.json"},
		"no JSON":                         {"[{path: a.json, schema: " + schema + "}]", `echo '{"answer":' > a.json`, tallyman.OutputInvalid, "a.json", "a.json"},
		"older than the attempt":          {"[{path: old.txt}]", "true", tallyman.NoOutput, "old.txt", ""},
		"a link to somewhere else":        {"[{path: passwd}]", "ln -s /etc/passwd passwd", tallyman.NoOutput, "passwd", ""},
		"too large":                       {"[{path: big}]", "head -c 3000000 /dev/zero > big", tallyman.OutputTooLarge, "big", ""},
		"a folder":                        {"[{path: a}]", "mkdir a", tallyman.NoOutput, "a", ""},
		"what failed tells its own end":   {"[{path: a.txt}, {path: b.txt}]", "echo x > a.txt; exit 3", tallyman.AgentError, "exit code 3", "a.txt"},
		"an empty file, an odd name":      {"[{path: '*'}]", "touch 'ü %2F?&.txt'", tallyman.Completed, "", "ü %2F?&.txt"},
		"the same by two patterns, once":  {"[{path: a.txt}, {path: '*.txt'}]", "echo x > a.txt", tallyman.Completed, "", "a.txt"},
		"what lies there and was touched": {"[{path: old.txt}]", "touch old.txt", tallyman.Completed, "", "old.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.set("TALLYMAN_MAX_ARTIFACT=2MB")
			work := filepath.Join(p.dir, "space")
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			old := filepath.Join(work, "old.txt")
			if err := os.WriteFile(old, []byte("old\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(old, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.outputs, "'*'") {
				if err := os.Remove(old); err != nil {
					t.Fatal(err)
				}
			}
			p.agent("agent", "harness: exec\nworkspace: "+work+"\noutputs: "+c.outputs+"\ncommand: [sh, "+p.write("do.sh", c.do+"\n")+"]")
			run := p.ends(c.reason, "agent")
			p.contains(run.Message, c.says)
			if got := strings.TrimSpace(strings.ReplaceAll(p.ok("artifacts", "ls", run.ID, "-o", "name"), "\n", " ")); got != c.kept {
				t.Errorf("kept are %q, want %q", got, c.kept)
			}
		})
	}
}

func TestArtifactsAreListedAndFetched(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "exec", "--output", "out/**", "--output", "top", "--", "sh", "-c", "mkdir out; printf 'a\\000b' > out/bin; head -c 2000000 /dev/urandom > top")
	var list struct {
		Items []tallyman.Artifact `json:"items"`
	}
	p.object(p.want(0, "artifacts", "ls", run.Name, "-o", "json"), &list)
	if len(list.Items) != 2 || list.Items[0].Name != "out/bin" || list.Items[0].Size != 3 || list.Items[0].Attempt != 1 || !strings.HasPrefix(list.Items[0].Digest, "sha256:") {
		t.Errorf("listed are %+v", list.Items)
	}
	p.contains(p.ok("artifacts", "ls", run.Name), "NAME", "out/bin", "3 B")
	p.contains(p.ok("show", run.Name), "artifacts", "out/bin, 3 B, attempt 1")
	p.contains(p.ok("show", run.Name, "-o", "json"), `"artifacts": [`, `"name": "out/bin"`)
	if got := p.ok("artifacts", "get", run.Name, "out/bin", "--to", "-"); got != "a\x00b" {
		t.Errorf("fetched is %q", got)
	}
	if got := p.ok("artifacts", "get", run.Name, "out/bin"); got != "bin\n" {
		t.Errorf("get prints %q", got)
	}
	p.contains(p.want(2, "artifacts", "get", run.Name, "out/bin").err, "bin is there already")
	p.ok("artifacts", "get", run.Name, "top", "--to", filepath.Join(p.dir, "copy"))
	want, err := os.ReadFile(filepath.Join(p.dir, "work", "top"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(p.dir, "copy"))
	if err != nil || string(got) != string(want) {
		t.Errorf("the copy has %d bytes of %d: %v", len(got), len(want), err)
	}
	p.contains(p.want(5, "artifacts", "get", run.Name, "nosuch").err, "nosuch")
	if b, err := json.Marshal(p.events(run.ID)); err != nil || strings.Count(string(b), `"type":"artifact"`) != 2 {
		t.Errorf("the events do not tell of two artifacts: %v", err)
	}
	p.ok("rm", run.ID)
	p.want(5, "artifacts", "ls", run.ID)
}
