package config_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/config"
)

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func lookup(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func load(t *testing.T, flags, env map[string]string, cwd string) (config.Config, config.Origins) {
	t.Helper()
	c, origins, err := config.Load(flags, lookup(env), cwd, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, origins
}

func TestDefaults(t *testing.T) {
	c, origins := load(t, nil, map[string]string{"HOME": "/home/u"}, t.TempDir())
	want := config.Config{
		Data: "/home/u/.local/state/tallyman", Listen: "127.0.0.1:7333", MaxRunning: 16, LogLevel: "info", LogFormat: "text",
		Retention: config.Retention{Age: tallyman.Duration(720 * time.Hour)},
		Grace:     tallyman.Duration(10 * time.Second), ResultGrace: tallyman.Duration(10 * time.Second), DrainBudget: tallyman.Duration(10 * time.Minute),
		StartTimeout: tallyman.Duration(10 * time.Minute), LostTimeout: tallyman.Duration(15 * time.Minute), JournalReserve: 64 << 20, MaxArtifact: 1 << 30,
		Backend: "local", Namespace: "default", PullPatience: tallyman.Duration(3 * time.Minute), KeepObjects: tallyman.Duration(time.Hour),
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	for key, from := range origins {
		if from != "default" {
			t.Errorf("%s comes from %s", key, from)
		}
	}
}

const everything = `
data: state
server: https://tallyman.example.com
token-file: token
agents: [agents, /opt/agents]
listen: "[::1]:80"
max-running: 3
log-level: debug
log-format: json
retention: {age: 0, size: 10GiB}
grace: 1s
result-grace: 2s
orphan-budget: 3s
drain-budget: 4s
start-timeout: 5s
lost-timeout: 6s
journal-reserve: 4096
max-artifact: 5MB
prices: ../prices.json
advertise: https://tallyman.example.com:7333
tls-cert: cert.pem
tls-key: key.pem
insecure-listen: true
server-ca: ca.pem
backend: kube
kubeconfig: kube.conf
cluster: west
namespace: agents
namespaces: [a, b]
runner-image: runner:1
default-tag: "2"
ca-config-map: roots
service-account: worker
openshift: true
owner: install
pull-patience: 7s
keep-objects: 8s
`

func TestEveryKeyOfTheFileIsRead(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "conf", "my.yaml"), everything)
	c, origins := load(t, map[string]string{"config": "conf/my.yaml"}, nil, dir)
	s := tallyman.Duration(time.Second)
	want := config.Config{
		Data: dir + "/conf/state", Server: "https://tallyman.example.com", TokenFile: dir + "/conf/token",
		Agents: []string{dir + "/conf/agents", "/opt/agents"}, Listen: "[::1]:80", MaxRunning: 3, LogLevel: "debug", LogFormat: "json",
		Retention: config.Retention{Size: 10 << 30}, Grace: s, ResultGrace: 2 * s, OrphanBudget: 3 * s, DrainBudget: 4 * s,
		StartTimeout: 5 * s, LostTimeout: 6 * s, JournalReserve: 4096, MaxArtifact: 5e6, Prices: dir + "/prices.json", File: path,
		Advertise: "https://tallyman.example.com:7333", TLSCert: dir + "/conf/cert.pem", TLSKey: dir + "/conf/key.pem", InsecureListen: true, ServerCA: dir + "/conf/ca.pem",
		Backend: "kube", Kubeconfig: dir + "/conf/kube.conf", ClusterName: "west", Namespace: "agents", Namespaces: []string{"a", "b"},
		RunnerImage: "runner:1", DefaultTag: "2", CAConfigMap: "roots", Account: "worker", OpenShift: true, Owner: "install", PullPatience: 7 * s, KeepObjects: 8 * s,
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, k := range config.Keys() {
		if !strings.HasPrefix(origins[k.Name], path+":") {
			t.Errorf("%s comes from %s", k.Name, origins[k.Name])
		}
	}
}

func TestFlagsOverEnvironmentOverFile(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "tallyman.yaml"), "grace: 1s\nlisten: localhost:1\nmax-running: 1\nretention: {age: 1h}\n")
	env := map[string]string{"HOME": "/h", "TALLYMAN_LISTEN": "localhost:2", "TALLYMAN_MAX_RUNNING": "2", "TALLYMAN_RETENTION_SIZE": "2kB", "TALLYMAN_AGENTS": "a:/b", "TALLYMAN_DATA": ""}
	flags := map[string]string{"max-running": "3", "retention-age": "3h", "token-file": "t"}
	c, origins := load(t, flags, env, dir)
	got := []any{c.Grace.String(), c.Listen, c.MaxRunning, c.Retention, c.Agents, c.TokenFile, c.Data, c.File}
	want := []any{"1s", "localhost:2", 3, config.Retention{Age: tallyman.Duration(3 * time.Hour), Size: 2000}, []string{dir + "/a", "/b"}, dir + "/t", "/h/.local/state/tallyman", file}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	for key, from := range map[string]string{
		"config": "found", "grace": file + ":1", "listen": "TALLYMAN_LISTEN", "max-running": "flag --max-running", "retention.age": "flag --retention-age",
		"retention.size": "TALLYMAN_RETENTION_SIZE", "agents": "TALLYMAN_AGENTS", "token-file": "flag --token-file", "data": "default",
	} {
		if origins[key] != from {
			t.Errorf("%s comes from %s, want %s", key, origins[key], from)
		}
	}
}

func TestTheFileIsLookedFor(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"flag", "env", "cwd", "xdg/tallyman", "home/.config/tallyman"} {
		writeFile(t, filepath.Join(dir, sub, "tallyman.yaml"), "data: /d\n")
	}
	flag, env := map[string]string{"config": dir + "/flag/tallyman.yaml"}, map[string]string{
		"TALLYMAN_CONFIG": "../env/tallyman.yaml", "XDG_CONFIG_HOME": dir + "/xdg", "HOME": dir + "/home",
	}
	without := func(names ...string) map[string]string {
		rest := map[string]string{}
		for k, v := range env {
			if !slices.Contains(names, k) {
				rest[k] = v
			}
		}
		return rest
	}
	for name, tt := range map[string]struct {
		flags, env map[string]string
		cwd, want  string
	}{
		"the flag":                     {flag, env, "cwd", "flag/tallyman.yaml"},
		"the variable":                 {nil, env, "cwd", "env/tallyman.yaml"},
		"the working folder":           {nil, without("TALLYMAN_CONFIG"), "cwd", "cwd/tallyman.yaml"},
		"the user's configuration":     {nil, without("TALLYMAN_CONFIG"), "elsewhere", "xdg/tallyman/tallyman.yaml"},
		"the user's usual one":         {nil, without("TALLYMAN_CONFIG", "XDG_CONFIG_HOME"), "elsewhere", "home/.config/tallyman/tallyman.yaml"},
		"none, and nobody asks for it": {nil, map[string]string{"XDG_STATE_HOME": "/s"}, "elsewhere", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := load(t, tt.flags, tt.env, filepath.Join(dir, tt.cwd))
			want := tt.want
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if c.File != want {
				t.Errorf("read %q, want %q", c.File, want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	home := map[string]string{"HOME": "/h"}
	tests := map[string]struct {
		file       string
		flags, env map[string]string
		want       string // DIR and FILE stand for the paths
	}{
		"no home":                     {"", nil, map[string]string{}, "data: is not given, and neither HOME nor XDG_STATE_HOME says where state belongs; name a folder: --data DIR"},
		"a home that is no folder":    {"", nil, map[string]string{"HOME": "h", "XDG_STATE_HOME": "s"}, "data: is not given, and neither HOME nor XDG_STATE_HOME says where state belongs; name a folder: --data DIR"},
		"a path in a home":            {"data: ~/x", nil, home, `FILE:1: data: "~/x" is not an absolute path`},
		"agents in a home":            {"agents: [~/x, \"\"]", nil, home, "FILE:1: agents: \"\" is not an absolute path\nFILE:1: agents: \"~/x\" is not an absolute path"},
		"an unknown key":              {"max-runing: 5", nil, home, `FILE:1:1: unknown key "max-runing" in the document; did you mean "max-running"?`},
		"a key a level too high":      {"retention:\n  days: 5", nil, home, `FILE:2:3: unknown key "days" in retention; it may have age, size`},
		"a wrong type":                {"grace: 10", nil, home, `FILE:1:8: grace: 10 is a number; write a duration like 90s`},
		"a wrong size":                {"max-artifact: 1.5GiB", nil, home, `FILE:1:15: max-artifact: "1.5GiB" is not a size: write it like 64MiB, 10GB or 4096`},
		"agents as text":              {"agents: ./x", nil, home, `FILE:1:9: agents: "./x" is text; write a list like [a, b]`},
		"bad YAML":                    {"a: [", nil, home, `FILE:1:4: bad YAML: sequence end token ']' not found`},
		"two documents":               {"grace: 1s\n---\ngrace: 2s\n", nil, home, `FILE:3:1: a second document; the configuration is one`},
		"a file that is not there":    {"", map[string]string{"config": "none.yaml"}, home, `read the configuration (flag --config): open DIR/none.yaml: no such file or directory`},
		"no number in a variable":     {"", nil, map[string]string{"HOME": "/h", "TALLYMAN_MAX_RUNNING": "many"}, `TALLYMAN_MAX_RUNNING: "many" is not a whole number`},
		"no number in a flag":         {"", map[string]string{"max-running": ""}, home, `flag --max-running: "" is not a whole number`},
		"a flag of no key":            {"", map[string]string{"max-run": "1"}, home, `flag --max-run: there is no such key; did you mean "max-running"?`},
		"no running":                  {"max-running: 0", nil, home, `FILE:1: max-running: 0 would never run anything; write 1 or more`},
		"no address":                  {"", map[string]string{"listen": "7333"}, home, `flag --listen: listen: "7333" is no address; write it like 127.0.0.1:7333`},
		"every address":               {"", map[string]string{"listen": ":7333"}, home, `flag --listen: listen: ":7333" is not on loopback: give --tls-cert and --tls-key, or --advertise URL for a certificate of the server's own; or listen on 127.0.0.1:7333 behind a TLS proxy; or say --insecure-listen`},
		"a public one":                {"listen: 0.0.0.0:80", nil, home, `FILE:1: listen: "0.0.0.0:80" is not on loopback: give --tls-cert and --tls-key, or --advertise URL for a certificate of the server's own; or listen on 127.0.0.1:80 behind a TLS proxy; or say --insecure-listen`},
		"no port":                     {"listen: 127.0.0.1:http", nil, home, `FILE:1: listen: "127.0.0.1:http" is no address; write it like 127.0.0.1:7333`},
		"no URL":                      {"server: localhost", nil, home, `FILE:1: server: this is no URL of a server; write it like http://127.0.0.1:7333`},
		"a password in the URL":       {"", nil, map[string]string{"HOME": "/h", "TALLYMAN_SERVER": "https://u:secret@x"}, `TALLYMAN_SERVER: server: the URL holds a user or password; put the token in a file and name it with token-file`},
		"a level nearly right":        {"log-level: warning", nil, home, `FILE:1: log-level: "warning" is none of debug, info, warn, error; did you mean "warn"?`},
		"a format of no kind":         {"", map[string]string{"log-format": "xml"}, home, `flag --log-format: log-format: "xml" is none of text, json`},
		"no time to start":            {"start-timeout: 0\nlost-timeout: 0s", nil, home, "FILE:2: lost-timeout: 0 leaves no time at all; write a duration like 60s\nFILE:1: start-timeout: 0 leaves no time at all; write a duration like 60s"},
		"no artifact":                 {"max-artifact: 0", nil, home, `FILE:1: max-artifact: 0 would refuse every artifact; write a size like 1GiB`},
		"a fault under a better flag": {"max-running: 0", map[string]string{"max-running": "2"}, map[string]string{"HOME": "/h", "TALLYMAN_MAX_RUNNING": "x"}, `TALLYMAN_MAX_RUNNING: "x" is not a whole number`},
		"everything at once": {"log-format: txt\nx: 1\n", map[string]string{"listen": "x"}, map[string]string{"HOME": "/h", "TALLYMAN_GRACE": "soon"},
			`FILE:2:1: unknown key "x" in the document; it may have data, server, token-file, agents, listen, max-running, log-level, log-format, retention, grace, result-grace, orphan-budget, drain-budget, start-timeout, lost-timeout, journal-reserve, max-artifact, backend, advertise, tls-cert, tls-key, insecure-listen, server-ca, kubeconfig, cluster, namespace, namespaces, runner-image, default-tag, ca-config-map, service-account, owner, openshift, pull-patience, keep-objects, prices
TALLYMAN_GRACE: "soon" is not a duration: write it like 90s, 15m or 2h
flag --listen: listen: "x" is no address; write it like 127.0.0.1:7333
FILE:1: log-format: "txt" is none of text, json; did you mean "text"?`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "tallyman.yaml")
			writeFile(t, file, tt.file)
			_, _, err := config.Load(tt.flags, lookup(tt.env), dir, nil)
			if err == nil {
				t.Fatal("it was accepted")
			}
			want := strings.NewReplacer("FILE", file, "DIR/", dir+"/").Replace(tt.want)
			if diff := cmp.Diff(want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if tallyman.CodeOf(err) != tallyman.Invalid {
				t.Errorf("code %s", tallyman.CodeOf(err))
			}
		})
	}
}

// A host's name is looked up by who listens, for a moment, and by nobody else.
func TestTheAddressToListenOn(t *testing.T) {
	answers := map[string][]netip.Addr{
		"here":  {netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")},
		"there": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7")},
		"six":   {netip.MustParseAddr("::1")},
	}
	for listen, c := range map[string]struct{ address, says string }{
		"127.0.0.1:1":    {"127.0.0.1:1", ""},
		"[::1]:1":        {"[::1]:1", ""},
		"localhost:1":    {"localhost:1", ""},
		"here:7333":      {"127.0.0.2:7333", ""},
		"six:7333":       {"[::1]:7333", ""},
		"there:7333":     {"", `listen: "there:7333" is not on loopback`},
		"nowhere:7333":   {"", `listen: "nowhere:7333": the host is not found (no such host); listen on 127.0.0.1:7333`},
		"silent.at:7333": {"", `listen: "silent.at:7333": the host is not found (context deadline exceeded)`},
	} {
		synctest.Test(t, func(t *testing.T) {
			lookup := func(ctx context.Context, network, host string) ([]netip.Addr, error) {
				if ips := answers[host]; network == "ip" && ips != nil {
					return ips, nil
				}
				if host == "silent.at" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, errors.New("no such host")
			}
			before := time.Now()
			cfg, _ := load(t, map[string]string{"listen": listen}, map[string]string{"HOME": "/h"}, "/")
			if cfg.Listen != listen || time.Since(before) != 0 {
				t.Errorf("%s is read as %s in %s", listen, cfg.Listen, time.Since(before))
			}
			got, err := cfg.ListenAddress(t.Context(), lookup)
			if took := time.Since(before); took > 2*time.Second {
				t.Errorf("%s: it took %s", listen, took)
			}
			switch {
			case c.says == "" && (err != nil || got != c.address):
				t.Errorf("%s: %q, %v; want %q", listen, got, err, c.address)
			case c.says != "" && (tallyman.CodeOf(err) != tallyman.Invalid || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%s: %q, %v; want %q", listen, got, err, c.says)
			}
		})
	}
}

func TestEveryKeyHasAFlagAndAVariable(t *testing.T) {
	for _, k := range config.Keys() {
		text := "1s"
		switch k.Name {
		case "retention.size", "journal-reserve", "max-artifact":
			text = "7KiB"
		case "max-running":
			text = "7"
		case "listen":
			text = "[::1]:7"
		case "server":
			text = "http://x"
		case "log-level":
			text = "error"
		case "log-format":
			text = "json"
		case "data", "token-file", "agents", "prices", "tls-cert", "tls-key", "server-ca", "kubeconfig":
			text = "/x"
		case "advertise":
			text = "https://x"
		case "insecure-listen", "openshift":
			text = "true"
		}
		pair := map[string]string{"HOME": "/h", "TALLYMAN_TLS_CERT": "/x", "TALLYMAN_TLS_KEY": "/x"} // one of them alone is refused
		byFlag, from := load(t, map[string]string{k.Flag(): text}, pair, "/")
		withEnv := maps.Clone(pair)
		withEnv[k.Env()] = text
		byEnv, _ := load(t, nil, withEnv, "/")
		if got := byFlag.Shown(from)[k.Name]; got != (config.Shown{Value: text, From: "flag --" + k.Flag()}) {
			t.Errorf("%s: shown as %+v, given %s", k.Name, got, text)
		}
		if diff := cmp.Diff(byFlag, byEnv); diff != "" {
			t.Errorf("%s: the variable says something else than the flag:\n%s", k.Name, diff)
		}
		if k.Help == "" {
			t.Errorf("%s has no help", k.Name)
		}
	}
}

func TestPrintIsMaskedAndSaysFromWhere(t *testing.T) {
	c := config.Defaults()
	c.Data, c.Server = "/d", "https://user:hunter2@example.com/x?token=hunter2"
	var out bytes.Buffer
	if err := c.Print(&out, config.Origins{"data": "TALLYMAN_DATA"}); err != nil {
		t.Fatal(err)
	}
	want := `KEY              VALUE                                     FROM
config           -                                         default
data             /d                                        TALLYMAN_DATA
server           https://user:xxxxx@example.com/x?xxxxx    default
token-file       -                                         default
`
	if got, _, _ := strings.Cut(out.String(), "agents"); cmp.Diff(strings.Fields(want), strings.Fields(got)) != "" {
		t.Errorf("printed:\n%s", out.String())
	}
	if all := out.String() + fmt.Sprint(c.Shown(nil)); strings.Contains(all, "hunter2") {
		t.Errorf("a password is shown:\n%s", all)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{"0": 0, "4096": 4096, "64MiB": 64 << 20, "1gib": 1 << 30, "2 TB": 2e12, "7B": 7, " 3kB ": 3000} {
		var b config.Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q is %d, %v; want %d", text, b, err, want)
		}
		var again config.Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%d written as %s is %d, %v", b, b, again, err)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1.5GiB", "1 GiB x", "9999999TiB", "0x10"} {
		var b config.Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted as %d", text, b)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(everything, "8")
	f.Add("retention: &r {age: 1h}", "-1")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file, running string) {
		path := writeFile(t, filepath.Join(dir, "tallyman.yaml"), file)
		c, _, err := config.Load(map[string]string{"config": path, "max-running": running}, lookup(map[string]string{"HOME": "/h"}), "/", nil)
		if err == nil && c.Validate() != nil {
			t.Errorf("accepted, but %v", c.Validate())
		}
	})
}

func TestAServerInAClusterHasOtherDefaults(t *testing.T) {
	others := map[string]string{"backend": "kube", "max-running": "7"}
	dir := t.TempDir()
	writeFile(t, dir+"/tallyman.yaml", "max-running: 9\n")
	c, origins, err := config.Load(nil, lookup(map[string]string{"HOME": dir}), dir, others)
	if err != nil || c.Backend != "kube" || c.MaxRunning != 9 || origins["backend"] != "default" {
		t.Errorf("backend %q from %s, max-running %d: %v", c.Backend, origins["backend"], c.MaxRunning, err)
	}
}

func TestWatchedNamespaces(t *testing.T) {
	c := config.Config{Namespace: "b", Namespaces: []string{"a", "b", "a", "c"}}
	if diff := cmp.Diff([]string{"b", "a", "c"}, c.Watched()); diff != "" {
		t.Error(diff)
	}
}
