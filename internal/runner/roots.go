package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallyman-dev/tallyman"
)

// systemRoots are where systems keep the authorities that they trust; the
// first that is there counts.
var systemRoots = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",             // openSUSE
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// rootsVariables are how programs are told of a bundle of authorities: Go and
// OpenSSL, Python's requests, Node, git, curl.
var rootsVariables = []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE"}

// roots tells the agent's programs of private authorities, by the variables
// that it returns. None are fine.
func (r *run) roots() ([]string, error) {
	path := r.path("ca-bundle.crt")
	found, err := bundle(path, filepath.Join(tallyman.PodRoots, "ca.crt"), systemRoots)
	if err != nil {
		return nil, setupError(tallyman.SetupFailed, "join the private authorities with the system's: %w", err)
	}
	if !found {
		return nil, nil
	}
	var env []string
	for _, name := range rootsVariables {
		env = append(env, name+"="+path)
	}
	return env, nil
}

// bundle writes private authorities together with the first of the system's
// that is there; found is false where there are no private ones.
func bundle(to, private string, system []string) (found bool, err error) {
	more, err := os.ReadFile(private)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var all []byte
	for _, path := range system {
		b, err := os.ReadFile(path)
		if err == nil {
			all = append(b, '\n')
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, os.WriteFile(to, append(all, more...), 0o644)
}
