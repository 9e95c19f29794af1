package cli

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman/client"
	"github.com/tallyman-dev/tallyman/internal/config"
)

func TestTheServersOwnAuthority(t *testing.T) {
	s := &server{cfg: config.Config{Data: t.TempDir(), Advertise: "https://tallyman.example:7333"}}
	path := filepath.Join(s.cfg.Data, "ca.pem")
	first, err := s.authority()
	if err != nil || !strings.HasPrefix(first, "-----BEGIN CERTIFICATE-----") || strings.Contains(first, "PRIVATE") {
		t.Fatalf("got %q, %v", first, err)
	}
	if again, err := s.authority(); err != nil || again != first {
		t.Errorf("the next server is vouched for by another: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may read its key: %v, %v", info.Mode(), err)
	}
	for _, text := range []string{"", "nonsense", first, "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.authority(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%.30q is taken for an authority: %v", text, err)
		}
	}
	for _, cfg := range []config.Config{{}, {Advertise: "http://x"}, {Advertise: "https://x", InsecureListen: true}, {Advertise: "https://x", TLSCert: "c", TLSKey: "k"}} {
		if ca, err := (&server{cfg: cfg}).authority(); err != nil || ca != "" {
			t.Errorf("%+v needs no authority of its own: %q, %v", cfg, ca, err)
		}
	}
}

// Who is told of the authority reaches the server by every name that it has,
// and nobody else takes its word.
func TestWhoTrustsTheServer(t *testing.T) {
	s := &server{cfg: config.Config{Data: t.TempDir(), Advertise: "https://tallyman.example:7333"}}
	speaks, err := s.tlsConfig()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"x"}`) })}
	go func() { _ = srv.Serve(tls.NewListener(l, speaks)) }()
	defer srv.Close()
	pem, err := s.authority()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New("https://"+l.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(hint(err), "--server-ca") {
		t.Errorf("who was not told takes its word: %v", err)
	}
	if err := c.TrustOnly([]byte("nonsense")); err == nil {
		t.Error("nonsense vouches for it")
	}
	if err := c.TrustOnly([]byte(pem)); err != nil {
		t.Fatal(err)
	}
	if info, err := c.Info(t.Context()); err != nil || info.Version != "x" {
		t.Errorf("who was told: %+v, %v", info, err)
	}
	leaf := speaks.Certificates[0].Leaf
	if leaf == nil {
		t.Fatal("the certificate was not parsed")
	}
	for _, name := range []string{"tallyman.example", "localhost", "127.0.0.1", "::1"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Errorf("it is not for %s: %v", name, err)
		}
	}
}
