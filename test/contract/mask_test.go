//go:build linux

package contract_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// The secrets, one from the server's environment and one from a file.
const (
	hostSecret = "swordfish-77-\"quoted\" & more\n-----a line of its own\nanother\\one"
	fileSecret = "hunter2-ümlaut/+=%20"
)

// forms are how a secret may come out again.
func forms() []string {
	var all []string
	for _, s := range append(strings.Split(hostSecret, "\n"), hostSecret, fileSecret) {
		quoted, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		all = append(all, s, strings.Trim(string(quoted), `"`), base64.StdEncoding.EncodeToString([]byte(s)), url.QueryEscape(s), url.PathEscape(s))
	}
	return all
}

// leaky prints every form of what it was given, on both streams, in files
// that are named for the purpose, and in its last words.
const leaky = `printf '%s' "$HOST_SECRET" | cmp - "$EXPECT/host" && printf '%s' "$FILE_SECRET" | cmp - "$EXPECT/file" && echo received
cat "$EXPECT/forms"
cat "$EXPECT/forms" >&2
touch ready
while ! [ -e go ]; do sleep 0.02; done
printf '%s' "$HOST_SECRET $FILE_SECRET" >&2
exit 3
`

func TestSecretsAreWrittenNowhere(t *testing.T) {
	p := newPlace(t)
	expect := filepath.Join(p.dir, "expect")
	if err := os.Mkdir(expect, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"host": hostSecret, "file": fileSecret, "forms": strings.Join(forms(), "\n--\n") + "\n"} {
		if err := os.WriteFile(filepath.Join(expect, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.set("HOST_SECRET="+hostSecret, "TALLYMAN_LOG_LEVEL=debug")
	p.write("agents/.env", "# a comment\nexport FILE_SECRET='"+fileSecret+"'\n")
	p.agent("leaky", "harness: exec\nworkspace: "+filepath.Join(p.dir, "work")+"\nenvFrom:\n- host: [HOST_SECRET]\n- file: .env\nenv: [{name: EXPECT, value: "+
		expect+"}]\ncommand: [sh, "+p.write("leaky.sh", leaky)+"]")
	s := p.up()
	run, err := s.api.Submit(t.Context(), tallyman.Request{Agent: "leaky"})
	if err != nil {
		t.Fatal(err)
	}
	p.eventually("it has spoken", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "work", "ready"))
		return err == nil
	})
	seen := map[string]string{"ps": ""}
	for _, args := range scan(t, func(args, _ []byte) bool { return true }) {
		seen["ps"] += args + "\n"
	}
	p.write("go", "")
	run = s.ended(run.ID)
	p.holds(run, tallyman.AgentError)
	for _, path := range []string{"", "/events", "/attempts", "/timeline", "/artifacts"} {
		_, seen["API"+path] = s.get("/api/v1/runs/" + run.ID + path)
	}
	_, seen["list"] = s.get("/api/v1/runs")
	_, seen["agents"] = s.get("/api/v1/agents")
	_, seen["page"] = s.get("/runs/" + run.ID)
	_, seen["metrics"] = s.get("/metrics")
	logs := p.want(0, "logs", run.ID)
	seen["logs"], seen["stderr"] = logs.out, logs.err
	seen["show"] = p.ok("show", run.ID)
	seen["config"] = p.ok("config")
	s.kill()
	seen["server's log"] = s.out.String() + s.err.String()
	p.hold(seen)
	p.contains(logs.out, "received\n")
	if n := strings.Count(logs.out, "\n"); n < len(forms()) {
		t.Errorf("the transcript has %d lines:\n%s", n, logs.out)
	}
}

// hold checks that no form of a secret is in what was seen, or in a file of
// the data folder.
func (p *place) hold(seen map[string]string) {
	p.t.Helper()
	err := filepath.WalkDir(p.data(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		seen[path] = string(b)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for where, text := range seen {
		for _, form := range forms() {
			if len(form) >= 8 && strings.Contains(text, form) {
				i := strings.Index(text, form)
				p.t.Errorf("%s has %q: …%q", where, form, text[max(0, i-80):min(len(text), i+len(form)+20)])
			}
		}
	}
	if p.t.Failed() {
		return
	}
	found := false
	for where := range seen {
		found = found || strings.Contains(where, "journal")
	}
	if !found {
		p.t.Error("no journal was looked at")
	}
}

func TestSecretsInAHarnessesOwnProtocolAreMasked(t *testing.T) {
	p := newPlace(t)
	p.set("HOST_SECRET="+hostSecret, "SHORT=abc", "TOLD=not-a-secret-at-all")
	p.agent("script", `harness: script
envFrom: [{host: [HOST_SECRET, SHORT]}, {host: [TOLD], mask: false}]
settings:
  steps: `+scriptOf(t, []any{
		map[string]any{"say": map[string]any{"text": "I say " + hostSecret + " and TOLD is not-a-secret-at-all", "over": "200ms"}},
		map[string]any{"think": "I think of " + hostSecret},
		map[string]any{"tool": map[string]any{"name": "Bash", "input": map[string]any{"command": "echo " + hostSecret}, "output": hostSecret}},
		map[string]any{"garbage": base64.StdEncoding.EncodeToString([]byte("\xff" + hostSecret))},
		map[string]any{"stderr": hostSecret},
		map[string]any{"result": "at last " + hostSecret},
	}))
	run := p.ends(tallyman.Completed, "script", "x")
	p.contains(run.Result, "at last ")
	events := p.ok("events", run.ID)
	p.contains(events, "I say ", "I think of ", "not-a-secret-at-all")
	// The agent's own steps are its file's, and kept with the run; all that it
	// did must be clean.
	for where, text := range map[string]string{"events": events, "logs": p.ok("logs", run.ID), "result": run.Result, "show": p.ok("show", run.ID)} {
		for _, form := range forms() {
			if len(form) >= 8 && strings.Contains(text, form) {
				t.Errorf("%s has %q", where, form)
			}
		}
	}
	journals, err := filepath.Glob(p.data("attempts", "*", "journal", "*"))
	if err != nil || len(journals) == 0 {
		t.Fatalf("no journals: %v", err)
	}
	for _, name := range journals {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("swordfish")) {
			t.Errorf("%s has the secret", name)
		}
	}
}

func scriptOf(t *testing.T, steps []any) string {
	t.Helper()
	b, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSecretsThatAreMissing(t *testing.T) {
	p := newPlace(t)
	p.agent("host", "harness: exec\ncommand: [\"true\"]\nenvFrom: [{host: [NOT_SET_HERE]}]")
	p.agent("file", "harness: exec\ncommand: [\"true\"]\nenvFrom: [{file: nowhere.env}]")
	p.agent("broken", "harness: exec\ncommand: [\"true\"]\nenvFrom: [{file: broken.env}]")
	p.agent("kube", "harness: exec\ncommand: [\"true\"]\nenvFrom: [{secretRef: {name: s}}]")
	p.agent("maybe", "harness: exec\ncommand: [\"true\"]\nenvFrom: [{host: [NOT_SET_HERE], optional: true}, {file: nowhere.env, optional: true}]")
	p.write("agents/broken.env", "GOOD=1\nsecret words without a name\n")
	p.contains(p.want(2, "run", "host").err, "NOT_SET_HERE")
	p.contains(p.want(2, "run", "file").err, "agents/nowhere.env")
	broken := p.want(2, "run", "broken").err
	p.contains(broken, "agents/broken.env:2")
	p.lacks(broken, "secret words")
	p.contains(p.want(2, "run", "kube").err, "Kubernetes")
	p.ends(tallyman.Completed, "maybe")
}

func TestASecretInTheNameOfAnArtifactIsMasked(t *testing.T) {
	p := newPlace(t)
	p.set("SECRET=topsecret12345")
	p.agent("namer", "harness: exec\ncommand: [sh, -c, 'mkdir out; echo x > \"out/$SECRET.txt\"']\nenvFrom: [{host: [SECRET]}]\noutputs: [{path: 'out/*'}]")
	run := p.ends(tallyman.Completed, "namer")
	p.lacks(p.ok("artifacts", "ls", run.ID, "-o", "json"), "topsecret12345")
}
